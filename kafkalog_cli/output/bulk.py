"""Large logs in `dump-segment`: read as columns, in the output format."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import DataError
from kafkalog.io.jit import fast_path
from kafkalog.log.batches.selection import plan_size
from kafkalog.log.columns.budget import logs_to_decode
from kafkalog_cli.output.records import PLAIN_TITLES, probe
from kafkalog_cli.output.text import (
    PLAIN_TIMES,
    BytesFormat,
    bytes_cell,
    clocks_ahead,
    csv_text,
    dumps,
    record_time_column,
)
from kafkalog_cli.output.writer import Format, row_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.log.batches.selection import ReadPlan, Selection
    from kafkalog.log.text.objects import Template
    from kafkalog.log.text.plain_rows import Cells
    from kafkalog.model import Record
    from kafkalog_cli.output.dump import DumpStyle
    from kafkalog_cli.output.kafka_text import RecordText
    from kafkalog_cli.output.objects import Style, View

    Progress = Callable[[int], None] | None

CONSTANTS: Final = frozenset(("type", "path", "topic", "partition", "control_type"))
"""Fields with the same value in all lines of a file: kernels write all others."""
# Up to this many first rows are read faster than the kernels can be loaded.
_FEW_ROWS = 500


def is_bulk(plan: ReadPlan) -> bool:
    """Return whether enough is read to make loading the kernels worthwhile."""
    selection, logs = plan.selection, [one.log for one in plan.segments]
    if selection.limit is not None and selection.limit <= _FEW_ROWS and not _searches(selection):
        return False
    size = sum(log.size_bytes for log in logs)
    if size < fast_path.FAST_SIZE_MIN:
        return fast_path.is_worth_it(logs_to_decode(log.path for log in logs))
    if not fast_path.is_worth_it(size):
        return False
    with suppress(DataError):  # the reader meets and reports it again
        return fast_path.is_worth_it(plan_size(plan))
    return False


def _searches(selection: Selection) -> bool:
    """Return whether any number of rows may precede the first wanted one."""
    wanted = (
        selection.key,
        selection.key_regex,
        selection.value_regex,
        selection.header,
        selection.where,
        selection.producer_id,
        selection.leader_epoch,
        selection.to_time,
    )
    return selection.control or any(value is not None for value in wanted)


def read_rows(
    plan: ReadPlan,
    view: View[Any],
    style: DumpStyle,
    progress: Progress,
    *,
    batches: bool,
) -> Iterator[Any]:
    """Yield lists of values, `PlainRows`, blocks of text and defects, in order.

    Kernels write the text if they know all fields of the objects; use it before requesting the next
    piece.
    """
    from kafkalog.log.columns.pipeline import Restored, read_contents

    shown, form = style.shown, Format(style.form)
    has_one_form = batches or shown.key_form == shown.value_form  # as a kernel has
    if not (form.has_objects and view.names and has_one_form):
        titles = tuple(column.title for column in view.columns)
        is_plain = titles == PLAIN_TITLES and has_one_form and not (shown.decoded or shown.exact)
        is_plain &= shown.value_form == BytesFormat.AUTO
        # A terminal shows colours, which only records have.
        if is_plain and form == Format.TABLE and not sys.stdout.isatty():
            from kafkalog.log.text.plain_rows import PlainCells

            yield from read_contents(plan, PlainCells(_cells(shown)), progress, batches=batches)
        else:
            yield from read_contents(plan, Restored(), progress, batches=batches)
        return

    from kafkalog.log.text.objects import BatchLines, RecordLines

    def line(value: Any) -> bytes:
        return b"".join(row_pieces(view.row(value), form))

    lines = BatchLines if batches else RecordLines
    made = lines(partial(_template, form, view, shown, batches=batches), line)
    yield from read_contents(plan, made, progress, batches=batches)


def _cells(style: Style) -> Cells:
    """Return the form of the cells under `PLAIN_TITLES`."""
    from kafkalog.log.text.plain_rows import QUARTER_S, Cells

    def of(offset: int, time: int, key: bytes | None, value: bytes | None) -> tuple[str, ...]:
        form = style.value_form
        cells = bytes_cell(key, form), bytes_cell(value, form)
        return str(offset), record_time_column(time, style), *cells, ""

    ahead = None if style.zone is UTC else partial(clocks_ahead, style.zone, QUARTER_S)
    return Cells(of, PLAIN_TIMES, None if ahead is None else lru_cache(4096)(ahead))


def read_kafka_text(
    plan: ReadPlan,
    text: RecordText,
    progress: Progress,
    *,
    batches: bool,
) -> Iterator[Any]:
    """Yield as `read_rows` does, for Kafka's text; lists if records are decoded."""
    from kafkalog.log.columns.pipeline import read_contents
    from kafkalog_cli.output import kafka_text

    if text.decoder is not None and not batches:
        from kafkalog.log.columns.pipeline import Restored

        return read_contents(plan, Restored(), progress, batches=batches)

    from kafkalog.log.text.kafka_text import KafkaText

    def record_line(record: Record) -> bytes:
        return kafka_text.record_line(record, text)

    made = KafkaText(
        content=text.content,
        metadata=text.metadata,
        line_of=record_line,
        batch_line_of=kafka_text.batch_line,
    )
    return read_contents(plan, made, progress, batches=batches)


def rows_of(found: Iterator[Any]) -> Iterator[Any]:
    """Yield the values of lists one by one; text and defects as they are."""
    for content in found:
        if isinstance(content, list):
            yield from content
        else:
            yield content


def _template(form: Format, view: View[Any], style: Style, path: str, *, batches: bool) -> Template:
    """Return the template for the lines of a file's batches or records, except control records.

    It is made from the object of a probe, so that lines of kernels and of `writer` have the same
    fields.
    """
    from kafkalog.log.text.objects import Template

    one = probe(path)
    row = view.row(one.batch if batches else one)
    is_csv = form == Format.CSV
    begin, end = {
        Format.NDJSON: ("{", "}\n"),
        Format.JSON: (",\n{", "}"),
        Format.CSV: ("", "\n"),
    }[form]
    parts: list[tuple[bytes, str | None]] = []
    text = begin
    for i, (name, value) in enumerate(row.items()):
        text += "," if i else ""
        text += "" if is_csv else f"{dumps(name)}:"
        if name in CONSTANTS:
            text += csv_text(value) if is_csv else dumps(value)
        else:
            parts.append((text.encode(), name))
            text = ""
    parts.append(((text + end).encode(), None))
    return Template(
        parts=parts,
        null=b"" if is_csv else b"null",
        quote=b"" if is_csv else b'"',
        bytes_form=style.value_form,
        csv=is_csv,
    )
