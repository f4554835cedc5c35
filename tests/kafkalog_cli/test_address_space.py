"""Commands under `ulimit -v`, which counts what is mapped, not what is used."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

LINES = {
    "sql": "sql -c QUERY examples/log-dir",
    "profile": "profile examples/log-dir",
    "export": "export examples/log-dir --to {to}",
    "report": "report examples/log-dir --to {to}",
}
QUERY = "select count(*) n from records"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [
        ("sql", 500), ("sql", 900), ("sql", 1300), ("profile", 300), ("profile", 400),
        ("export", 300), ("export", 500), ("report", 400), ("report", 700), ("report", 1400),
        ("report", 1600),
    ],
)  # fmt: skip
def test_a_small_address_space_is_refused(name: str, mebibytes: int, tmp_path: Path) -> None:
    """The libraries would end the process by a signal: `ulimit -v` is seen before they load."""
    script = "import sys; from kafkalog_cli.main import run; sys.exit(run(sys.argv[1:]))"
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({mebibytes << 20},) * 2)"
    to = tmp_path / "to"
    words = [QUERY if one == "QUERY" else one.format(to=to) for one in LINES[name].split()]
    done = subprocess.run(
        [sys.executable, "-c", f"{limited}; {script}", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, ""), done.stderr
    assert f"the limit of this process is {mebibytes} MiB (ulimit -v)" in done.stderr
    assert not to.exists()
