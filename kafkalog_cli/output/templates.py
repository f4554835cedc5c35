"""Lines of records and batches for the columnar core: `rows` says which fields, in which order.

A template is made of a row that `rows` made of a probe, so that the lines of kernels and the lines
of `writer` cannot have different fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.columnar.objects import Template
from kafkalog_cli.output.row_text import csv_text, dumps
from kafkalog_cli.output.rows import batch_row, probe, record_row
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from kafkalog_cli.output.objects import Row
    from kafkalog_cli.output.text import BytesFormat

# What is the same in all lines of data of a file; all else has its field in `kafkalog.columnar`.
_CONSTANTS = frozenset(("type", "path", "control_type"))


def record_template(path: str, form: Format, bytes_form: BytesFormat) -> Template:
    """The template for the records of a file, control records excepted."""
    return _template(record_row(probe(path), bytes_form), form, bytes_form)


def batch_template(path: str, form: Format, bytes_form: BytesFormat) -> Template:
    """The template for the batches of a file."""
    return _template(batch_row(probe(path).batch), form, bytes_form)


def _template(row: Row, form: Format, bytes_form: BytesFormat) -> Template:
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
        if name in _CONSTANTS:
            text += csv_text(value) if is_csv else dumps(value)
        else:
            parts.append((text.encode(), name))
            text = ""
    parts.append(((text + end).encode(), None))
    return Template(
        parts=parts,
        null=b"" if is_csv else b"null",
        quote=b"" if is_csv else b'"',
        bytes_form=bytes_form,
        csv=is_csv,
    )
