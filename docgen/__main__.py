"""Rewrites the generated blocks of the docs; with `--sessions`, the console blocks as well."""

from __future__ import annotations

import argparse
import os

from docgen.output import write_schemas
from docgen.pages import DOCS, ROOT, pages, with_blocks, with_sessions
from docgen.terminal import terminal_picture
from kafkalog_cli.output.schemas import VERSION


def main() -> None:
    """Rewrite every page in place."""
    parser = argparse.ArgumentParser(prog="python -m docgen", description=__doc__)
    parser.add_argument("--sessions", action="store_true", help="run the commands that pages show")
    options = parser.parse_args()
    os.chdir(ROOT)
    (DOCS / "verify.svg").write_text(terminal_picture(), encoding="utf-8")
    write_schemas(DOCS / "schemas" / str(VERSION))
    for page in pages():
        text = page.read_text(encoding="utf-8")
        written = with_blocks(with_sessions(text) if options.sessions else text)
        if written != text:
            page.write_text(written, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
