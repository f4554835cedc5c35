"""`kafkalog explain`: the meaning of a finding, an error, a rule or a config, and what to do."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kafkalog_cli.completion import config_names
from kafkalog_cli.options import Form
from kafkalog_cli.output.writer import write_all
from kafkalog_cli.pager import start_pager


def _completed(incomplete: str) -> list[str]:
    from kafkalog_cli.output.explanations import all_explanations
    from kafkalog_cli.output.rules import RULES

    names = (*RULES, *(known.reference for known in all_explanations()))
    found = [name for name in names if name.startswith(incomplete)]
    return found + config_names(incomplete)


def explain(
    references: Annotated[list[str] | None, typer.Argument(
        metavar="[NAME]...", help="A finding, an error, options, exit-status, times, bounds, "
        "formats, config, a config of Kafka's or, with --schema, a type of row; without it, list "
        "all findings and errors.",
        show_default=False, autocompletion=_completed,
    )] = None,
    schema: Annotated[bool, typer.Option(
        "--schema", help="Print the JSON Schema of the rows of a type, or of all types, one a line."
    )] = False,
    *,
    shown: Form,
) -> int:  # fmt: skip
    """Explain a finding or an error: its meaning, its cause, what a broker does, what to do.

    Also the rules that all commands share, this user's config, and configs of Kafka's.

    \b
    kafkalog explain batch-crc-mismatch
    kafkalog explain exit-status
    kafkalog explain segment.bytes
    kafkalog explain torn-tail zero-tail -o ndjson
    kafkalog explain record --schema
    """
    form = shown.format
    if schema:
        from kafkalog_cli.output.schemas import print_schemas

        print_schemas(references or ())
        return 0
    from kafkalog_cli.output.explanations import (
        all_explanations,
        explanation_of,
        explanation_view,
        print_explanation,
    )
    from kafkalog_cli.output.rules import RULES, config_lines

    start_pager()
    if not form.is_screen or not references:
        found = [explanation_of(name) for name in references or ()] or all_explanations()
        write_all(found, explanation_view(), form)
        return 0
    # An unknown name is an error before anything is shown.
    known = {
        name: ([*RULES[name]()] if name in RULES else config_lines(name)) or explanation_of(name)
        for name in references
    }
    for number, one in enumerate(known.values()):
        if isinstance(one, list):
            before = "\n" if number else ""
            sys.stdout.write(before + "".join(f"{line}\n" for line in one))
        else:
            print_explanation(one, first=not number)
    return 0
