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
UNUSED = ["ipaddress", "pdb", "subprocess"]
"""What Typer and construct import, and no command below uses."""
FEW = [*UNUSED, "cramjam", "ctypes", "hashlib", "pkgutil", "random", "zipfile",
       "kafkalog.log.defects.table"]  # fmt: skip
"""What a few sound records of one codec need none of."""
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
DUMP = (
    "from kafkalog_cli.main import run\n"
    "assert run(['dump-segment', 'examples/log-dir/orders-0', '-o', 'ndjson', '-n', '9']) == 0"
)
OWN = ("formats", "kafkalog", "kafkalog_cli")
COUNT = (
    "from kafkalog_cli.main import run\n"
    "from kafkalog_cli.without_pandas import hide_pandas; hide_pandas()\n"
    "assert run(['sql', 'examples/log-dir', '-c', 'select count(*) from records']) == 0"
)


def loaded(statement: str) -> set[str]:
    """Return the modules in memory after a statement, in a fresh interpreter."""
    code = f"import sys\n{statement}\nsys.stdout.flush()\nprint()\nprint(*sys.modules)"
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
        (HELP, [*HEAVY, *DECODERS, *FEW, "humanize", "rich", "dataclasses", "formats.constants"]),
        (HELP.replace("--help", "--version"), [*HEAVY, "construct", "humanize"]),
        (LS, [*HEAVY, *UNUSED, "hashlib", "importlib.resources", "pickle", "random", "rich"]),
        (LS.replace("log-dir", "log-dir/orders-0"), [*HEAVY, *DECODERS, *UNUSED, "rich"]),
        (LOOKUP, [*HEAVY, *DECODERS, *FEW, "rich"]),
        (DUMP, [*HEAVY, *FEW, "construct", "csv", "logging", "rich"]),
        (INDEX, [*HEAVY, *DECODERS, "typer", "rich", "decimal", "shutil", "lzma"]),
        ("import kafkalog.io.jit.library", [*HEAVY, "hashlib", "shutil", "subprocess"]),
        (COUNT, ["pandas", "numba", "pyspark"]),
    ],
    ids=["import kafkalog", "every public name", "small reads", "import formats", "--help",
         "--version", "ls", "ls of a partition", "lookup", "dump", "offset index",
         "library of kernels", "count"],
)  # fmt: skip
def test_start_loads_only_what_it_uses(statement: str, forbidden: list[str]) -> None:
    """Start-up stays fast, and the library is complete without the command line."""
    assert loaded(statement) & set(forbidden) == set()


@pytest.mark.parametrize(
    ("statement", "most"), [(HELP, 28), (LOOKUP, 97), (DUMP, 106), (LS, 123)],
    ids=["--help", "lookup", "dump", "ls"],
)  # fmt: skip
def test_a_command_loads_few_modules_of_ours(statement: str, most: int) -> None:
    """Each takes time, even if nothing of it is used: a new one needs a reason here."""
    assert len([name for name in loaded(statement) if name.split(".")[0] in OWN]) <= most


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
