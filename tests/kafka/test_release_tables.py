"""The tables of a release of Kafka are those that the script makes from its jars."""

from __future__ import annotations

import shutil
from functools import cache
from typing import TYPE_CHECKING

import pytest

from formats.releases import newest
from releases import __main__ as script

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka

CUT = {
    "messages.txt": "UnregisterControllerRecord",
    "requests.txt": " response ",
    "features.txt": "metadata.version",
    "configs.txt": "retention.ms",
    "error_codes.py": "UNKNOWN_SERVER_ERROR",
}
"""A word of each table; lines with it are what a table lacks that is of an older release."""


@pytest.mark.usefixtures("java_tools")
def test_the_script_makes_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes nothing, and restores tables from which entries were cut, showing each change."""
    for name in ("facts_of", "_definitions"):  # the second time the jars say the same
        monkeypatch.setattr(script, name, cache(getattr(script, name)))
    own = shutil.copytree(script.FORMATS, tmp_path / "formats")
    monkeypatch.setattr(script, "FORMATS", own)
    release = f"{newest().name}.0"
    assert list(script.write(release)) == []
    whole = {path.name: path.read_bytes() for path in own.iterdir() if path.is_file()}
    for name, word in CUT.items():
        lines = whole[name].decode().splitlines(keepends=True)
        kept = [one for one in lines if one.startswith("#") or word not in one]
        assert len(kept) < len(lines), name
        (own / name).write_text("".join(kept), "utf-8")
    changes = list(script.write(release))
    assert {path.name: path.read_bytes() for path in own.iterdir() if path.is_file()} == whole
    shown = "\n".join(changes)
    assert all(f"+++ {name}" in shown for name in CUT), shown
