"""All read commands on old and odd directories: no false alarm, and the right one for damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.builders import copy_tree
from tests.odd_log_dirs import ODD_LOG_DIRS, OddLogDir, make
from tests.sweeps import run_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Result

SEED = 20261122
KINDS = pytest.mark.parametrize("kind", ODD_LOG_DIRS, ids=lambda kind: kind.name)


@pytest.mark.sampled(3)
@KINDS
@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_findings_are_those_of_the_kind(
    kind: OddLogDir, seed: int, tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """At each level: nothing above a note for a broker's directories, else the kind's findings."""
    root = make(kind, tmp_path / "log-dir", seed)
    for level in ("quick", "deep"):
        result = kafkalog("verify", root, "--level", level, "--format", "ndjson")
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        grave = {row["reference"] for row in rows if row.get("severity", "note") != "note"}
        assert grave == kind.findings
        assert result.status == int(bool(grave)), result.stderr


@pytest.mark.sampled(2)
@KINDS
def test_every_read_command_comes_to_an_end(
    kind: OddLogDir, tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """Statuses are those of the contract. A directory that a broker closed gives 0 for all."""
    root = make(kind, tmp_path / "log-dir", SEED)
    for partition in sorted(root.glob("*-0")):
        files = sorted(path for path in partition.iterdir() if "00000" in path.name)[:4]
        statuses = run_all(kafkalog, partition, files)
        assert kind.findings or statuses <= {0, 1, 2}
    is_closed = not kind.findings and kind.name != "in-mid-swap"
    allowed = {0, 4} if is_closed else {0, 3, 4, 6, 8}
    for words in (
        ("ls", root), ("recover", root), ("rebuild-index", root), ("retention", root),
        ("profile", root),
        ("compact", root, "--config", "cleanup.policy=compact"),
        ("export", root, "--to", tmp_path / "exported"),
        ("salvage", root, "--to", tmp_path / "salvaged"),
    ):  # fmt: skip
        result = kafkalog(*words)
        assert "Traceback" not in result.stderr, (words, result.stderr)
        assert result.status in allowed, (words, result)


def test_long_names_and_keys_widen_their_own_rows_only(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """A topic of 237 characters and a key of 900 bytes do not widen any other row."""
    root = make(ODD_LOG_DIRS[2], tmp_path / "log-dir", SEED)
    (root / "orders-1").rename(root / f"{'x' * 237}-1")
    lines = kafkalog("ls", root).stdout.decode().splitlines()
    short = [line for line in lines if "x" * 237 not in line]
    assert len(short) < len(lines)
    assert max(map(len, short)) < 160
    lines = kafkalog("recover", root).stdout.decode().splitlines()
    assert max(len(line) for line in lines if "x" * 237 not in line) < 160
    result = kafkalog("verify", root).stdout.decode().splitlines()
    assert max(len(line) for line in result if "x" * 237 not in line) < 200


def test_ls_du_and_profile_call_directories_alike_and_count_numbers(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """They use the directory's name, even if it is no partition's; 2 comes before 10."""
    names = ["junk", "orders-2", "orders-10"]
    (tmp_path / "logs").mkdir()
    logs = [tmp_path / "logs" / name for name in reversed(names)]
    for log in logs:
        copy_tree(Path("examples/log-dir/orders-0"), log)

    def called(*command: object) -> list[str]:
        lines = kafkalog(*command).stdout.decode().splitlines()
        return [line.split()[0] for line in lines if line.startswith(("junk", "orders"))]

    assert called("profile", *logs) == [*names, "orders-*"]
    assert sorted(called("ls", *logs)) == sorted(names)
    assert sorted(called("ls", "--segments", *logs)) == sorted(names * 4)
    assert sorted(called("du", "--by", "partition", *logs)) == sorted(names)
