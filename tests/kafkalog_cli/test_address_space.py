"""Commands under `ulimit -v`, which counts what is mapped, not what is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

QUERY = "select count(*) n from records"


@pytest.mark.parametrize("mebibytes", [900, 1300])
def test_a_small_address_space_is_refused(mebibytes: int) -> None:
    """The libraries would end the process with SIGSEGV: `ulimit -v` is seen before they load."""
    script = "import sys; from kafkalog_cli.main import run; sys.exit(run(sys.argv[1:]))"
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({mebibytes << 20},) * 2)"
    done = subprocess.run(
        [sys.executable, "-c", f"{limited}; {script}", "sql", QUERY, "examples/log-dir"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "")
    assert f"the limit of this process is {mebibytes} MiB (ulimit -v)" in done.stderr
