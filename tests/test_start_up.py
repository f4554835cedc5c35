"""What is loaded at start: checks that the import rules have their effect."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = ["numpy", "numba", "pyarrow", "pyspark", "pandas"]
SMALL_READS = (
    "import kafkalog; log = kafkalog.open('examples/log-dir')['orders-0']; "
    "log.records()[0]; log.lookup(offset=7); list(log.offsets); list(log.batches())"
)
DECODERS = ["construct", "csv", "json", "logging"]
"""What reading a few records and small files needs none of."""
HELP = "from kafkalog_cli.main import run; run(['--help'])"
INDEX = (
    "from kafkalog_cli.main import run; run(['kafka-dump-log', '--verify-index-only', '--files',"
    " 'examples/log-dir/orders-0/00000000000000000000.index'])"
)
LS = "from kafkalog_cli.main import run; assert run(['ls', 'examples/log-dir']) == 0"
LOOKUP = (
    "from kafkalog_cli.main import run; partition = 'examples/log-dir/orders-0'\n"
    "assert run(['lookup-offset', partition, '7', '--timestamp', '0', '--show']) == 0"
)
COUNT = (
    "from kafkalog_cli.main import run\n"
    "from kafkalog_cli.without_pandas import hide_pandas; hide_pandas()\n"
    "assert run(['sql', 'examples/log-dir', '-c', 'select count(*) from records']) == 0"
)


def loaded(statement: str) -> set[str]:
    """Return the top-level modules in memory after a statement, in a fresh interpreter."""
    code = (
        f"import sys\n{statement}\nsys.stdout.flush()\n"
        "print()\nprint(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import kafkalog", [*HEAVY, "construct", "typer", "rich", "kafkalog_cli"]),
        ("import kafkalog; [getattr(kafkalog, name) for name in kafkalog.__all__]",
         [*HEAVY, "typer", "rich", "humanize", "kafkalog_cli"]),
        (SMALL_READS, [*HEAVY, "logging", "typer", "rich", "kafkalog_cli"]),
        ("import formats", [*HEAVY, "construct", "kafkalog"]),
        (HELP, [*HEAVY, *DECODERS, "humanize", "rich", "dataclasses", "formats"]),
        (HELP.replace("--help", "--version"), [*HEAVY, "construct", "humanize"]),
        (LS, [*HEAVY, "rich"]),
        (LS.replace("log-dir", "log-dir/orders-0"), [*HEAVY, *DECODERS, "rich"]),
        (LOOKUP, [*HEAVY, *DECODERS, "rich"]),
        (INDEX, [*HEAVY, *DECODERS, "typer", "rich", "decimal", "shutil", "lzma"]),
        ("import kafkalog.io.jit.library", [*HEAVY, "hashlib", "shutil", "subprocess"]),
        (COUNT, ["pandas", "numba", "pyspark"]),
    ],
    ids=["import kafkalog", "every public name", "small reads", "import formats", "--help",
         "--version", "ls", "ls of a partition", "lookup", "offset index",
         "library of kernels", "count"],
)  # fmt: skip
def test_start_loads_only_what_it_uses(statement: str, forbidden: list[str]) -> None:
    """Start-up stays fast, and the library is complete without the command line."""
    assert loaded(statement) & set(forbidden) == set()


def test_indexes_are_rebuilt_without_schemas_of_topics(tmp_path: Path) -> None:
    """Those of internal topics matter where there is a metadata log."""
    partition = shutil.copytree("examples/log-dir/orders-0", tmp_path / "orders-0")
    words = ["rebuild-index", str(partition), "--apply", "--yes"]
    seen = loaded(
        f"from kafkalog_cli.main import run; assert run({words}) in (0, 9)\n"
        "assert 'formats.internal_topics' not in sys.modules"
    )
    assert seen & {"numba", "pyarrow", "rich"} == set()


def test_the_probe_sees_what_is_loaded() -> None:
    """A probe that saw nothing would pass every test above."""
    assert "construct" in loaded("import formats.record_batch")
