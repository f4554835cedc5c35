"""`kafkalog explain`: the meaning of a reference, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog_cli.options import FormatOption
from kafkalog_cli.output.writer import Format, write_all


def _completed(incomplete: str) -> list[str]:
    from kafkalog_cli.output.explanations import all_explanations

    names = (known.reference for known in all_explanations())
    return [name for name in names if name.startswith(incomplete)]


def explain(
    references: Annotated[list[str] | None, typer.Argument(
        metavar="[REFERENCE]...",
        help="Name of a finding, an error or, with --schema, a type of row; without it, list all.",
        show_default=False, autocompletion=_completed,
    )] = None,
    schema: Annotated[bool, typer.Option(
        "--schema", help="Print the JSON Schema of the rows of a type, or of all types, one a line."
    )] = False,
    form: FormatOption = Format.TABLE,
) -> int:  # fmt: skip
    """Explain a finding or an error: its meaning, its cause, what a broker does, what to do.

    \b
    kafkalog explain
    kafkalog explain batch-crc-mismatch
    kafkalog explain torn-tail zero-tail --format ndjson
    kafkalog explain record --schema
    """
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

    found = [explanation_of(name) for name in references or ()] or all_explanations()
    if references and form == Format.TABLE:
        for number, explanation in enumerate(found):
            print_explanation(explanation, first=not number)
        return 0
    write_all(found, explanation_view(), form)
    return 0
