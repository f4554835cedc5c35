"""Writes the generated pages of `docs/`: `make docs`, or `python -m docs.generate` from the root.

What a page says comes from the code, so that it cannot go stale; a test compares.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from docs.command_page import command_page
from docs.config_page import config_page
from docs.library_page import library_page
from docs.output_page import output_page
from docs.reference_pages import defect_page, exit_code_page, format_page
from docs.spark_page import spark_page

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS = Path(__file__).parent
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": command_page,
    "configs.md": config_page,
    "defects.md": defect_page,
    "exit-codes.md": exit_code_page,
    "formats.md": format_page,
    "library.md": library_page,
    "output.md": output_page,
    "spark.md": spark_page,
}
_NOTICE = "<!-- Written by `make docs`: change docs/*.py or the code, not this file. -->\n"


def page(name: str) -> str:
    """The text of a generated page."""
    return _NOTICE + PAGES[name]()


def main() -> None:
    """Write all pages."""
    os.chdir(DOCS.parent)
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    main()
