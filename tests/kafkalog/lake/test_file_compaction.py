"""Small files of plain Parquet are merged: who lists the directory finds each row once, always."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkalog.storage.file_tree
from kafkalog.errors import CorruptDataError, UnsupportedError, UnwritableError
from kafkalog.lake import file_compaction
from tests.kafkalog.lake import appending
from tests.kafkalog.lake.appending import FILES, append, grow, rows, rows_of
from tests.kafkalog.lake.exporting import table_of
from tests.kafkalog.lake.test_compaction import merge, table_of_many
from tests.kafkalog.lake.test_rejects import add, asked, bad, good, in_rejects, in_table
from tests.kafkalog.lake.test_rejects import grow as grow_orders
from tests.kafkalog.lake.test_stopped_appends import Killing, StoppedError
from tests.kafkalog.tables.test_other_disks import make_log
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]


def counting(to: Path) -> set[str]:
    """Return the files that count, by the commits and merges of a table."""
    found: set[str] = set()
    replaced: set[str] = set()
    for place in (to / "_kafkalog/commits").iterdir():
        found |= {one["file"] for one in json.loads(place.read_text())["parts"] if one["file"]}
    for place in (to / "_kafkalog").glob("merges/*"):
        for one in json.loads(place.read_text())["files"]:
            found.add(one["file"])
            replaced |= set(one["replaces"])
    assert replaced <= found
    return found - replaced


def globbed(to: Path) -> list[int]:
    """Return the offsets that DuckDB finds by a pattern, which also goes to hidden directories."""
    found = duckdb.read_parquet(f"{to}/**/*.parquet").order('"offset"').project('"offset"')
    return [offset for (offset,) in found.fetchall()]


def of_table(to: Path) -> set[str]:
    """Return the files of the directory that are rows of the table."""
    return {str(path.relative_to(to)) for path in to.rglob("*.parquet")}


def test_the_rows_are_the_same(tmp_path: Path) -> None:
    """They are in one file, in the order of offsets; the next run continues after them."""
    log, to = table_of_many(tmp_path, FILES)
    append(log, to=to)
    before, names = table_of(to).sort_by("offset"), of_table(to)
    mode = 0o750
    (to / "topic=orders/partition=0").chmod(mode)
    (to / "topic=orders/partition=0/_of_others").write_text("stays")
    done = merge(log, to, FILES)
    assert done.was_complete
    assert (done.merged.files, done.merged.into) == (len(names), 1)
    [name] = of_table(to)
    assert counting(to) == {name}
    assert pq.ParquetFile(to / name).read().column("offset").to_pylist() == list(range(129))
    assert table_of(to).equals(before.select(table_of(to).column_names))
    assert (to / "topic=orders/partition=0").stat().st_mode & 0o777 == mode
    assert (to / "topic=orders/partition=0/_of_others").read_text() == "stays"
    assert (to / "_SUCCESS").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"log", "lake"}
    assert merge(log, to, FILES).merged.files == 0
    grow(log / "orders-0", 129, 1)
    done = merge(log, to, FILES)
    assert (done.rows, done.merged.files, done.merged.into) == (3, 2, 1)
    assert rows_of(to) == rows(0, 132)
    assert counting(to) == of_table(to)


def test_files_that_are_large_enough(tmp_path: Path) -> None:
    """They stay the same files, and merged ones do not get much larger than requested."""
    log, to = table_of_many(tmp_path, FILES)
    append(log, to=to)
    assert merge(log, to, FILES, 1).merged.files == 0
    inodes = {path.stat().st_ino: path.stat().st_size for path in to.rglob("*.parquet")}
    size = 3 * max(inodes.values())
    done = merge(log, to, FILES, size)
    assert 1 < done.merged.into < done.merged.files
    merged = {path.stat().st_ino for path in to.rglob("*.parquet")}
    again = merge(log, to, FILES, min(path.stat().st_size for path in to.rglob("*.parquet")))
    assert again.merged.files == 0
    assert {path.stat().st_ino for path in to.rglob("*.parquet")} == merged
    assert rows_of(to) == rows(0, 129)


def test_files_with_other_columns(tmp_path: Path) -> None:
    """The merged file has all columns of the table: null where a file before had none."""
    log, to = tmp_path / "log", tmp_path / "lake"
    partition = make_log(log)
    fewer = ("offset", "value", "leader_epoch")
    for first, columns in ((120, fewer), (123, (*fewer, "headers", "timestamp")), (126, fewer)):
        merge(log, to, FILES, None, columns)
        grow(partition, first, 1)

    def found() -> list[Any]:
        made = duckdb.sql(f"FROM read_parquet('{to}/**/*.parquet', union_by_name=true)")
        names = ", ".join(f'"{name}"' for name in (*fewer, "headers", "timestamp"))
        return made.order('"offset"').project(names).fetchall()

    before = [row for row in found() if row[0] < 126]
    assert {row[3] is None for row in before} == {True, False}
    assert merge(log, to, FILES, columns=fewer).merged.into == 1
    assert found()[:126] == before
    assert len(found()) == 129


@pytest.mark.parametrize("grows", [False, True])
def test_a_run_that_stops_while_it_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    """Readers that list find each row once at any stop, in one of two topics or in both; the next
    run lets the merge say what counts, and goes on, with or without more to merge.
    """
    log, first = table_of_many(tmp_path, FILES)
    for offset in (0, 3):
        grow(log / "others-0", offset, 1)
        append(log, to=first)
    before = sorted([*range(129), *range(6)])
    killing = Killing(monkeypatch)
    step = 1 if tries_everything() else 19
    at = drawn_for(f"merging plain files {grows}").randrange(step)
    is_stopped, stops = True, 0
    while is_stopped:
        offsets = before
        to, grown = tmp_path / f"{at}" / "lake", tmp_path / f"{at}" / "log"
        shutil.copytree(first, to)
        shutil.copytree(log, grown)
        killing.calls = at
        try:
            merge(grown, to, FILES)
        except StoppedError:
            stops += 1
        else:
            is_stopped = False
        killing.calls = None
        assert globbed(to) == offsets, at
        assert table_of(to).num_rows == len(offsets)
        if grows:
            grow(grown / "orders-0", 129, 1)
            offsets = sorted([*offsets, 129, 130, 131])
        append(grown, to=to)
        assert globbed(to) == offsets
        assert counting(to) == of_table(to), at
        assert {path.name for path in to.parent.iterdir()} == {"log", "lake"}
        assert (to / "_SUCCESS").exists()
        merge(grown, to, FILES)
        assert globbed(to) == offsets
        assert len(of_table(to)) == 2
        assert counting(to) == of_table(to)
        at += step
    assert stops >= 21 // step, "files, the merge, links, exchanges, removals"


def test_rejects_are_merged(tmp_path: Path) -> None:
    """They are merged like the table, with the same rows, and the next run continues."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    for end in (6, 12, 18):
        grow_orders(log, end - 6, end)
        add(log, to, FILES)
    request = replace(asked(log, FILES, append=True), compact_below=1 << 20)
    merged = appending.add(request, to, max_rejects=9)[-1].merged
    assert (merged.files, merged.into) == (6, 2)
    assert len(list((to / "_rejects").rglob("*.rejects"))) == 1
    assert (in_table(to, FILES), in_rejects(to, FILES)) == (good(18), bad(18))
    grow_orders(log, 18, 24)
    add(log, to, FILES)
    assert (in_table(to, FILES), in_rejects(to, FILES)) == (good(24), bad(24))


def test_damaged_files(tmp_path: Path) -> None:
    """A file that is not as it was written is named, and nothing is merged or removed."""
    log, to = table_of_many(tmp_path, FILES)
    append(log, to=to)
    names = of_table(to)
    path = to / min(names)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match="not as it was written") as caught:
        merge(log, to, FILES)
    assert caught.value.path == str(path)
    assert of_table(to) == names
    assert (to / "_SUCCESS").exists()
    assert {one.name for one in tmp_path.iterdir()} == {"log", "lake"}


@pytest.mark.parametrize("wrong", ["fewer", "other"])
def test_what_a_merged_file_has_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """If it has other rows than those before, or only some of them, these stay."""
    log, to = table_of_many(tmp_path, FILES)
    append(log, to=to)
    names = of_table(to)
    read, calls = file_compaction._rows, []

    def writing(*arguments: Any) -> Any:
        calls.append(arguments)
        for table in read(*arguments):
            if len(calls) > 1:
                yield table
            else:
                yield table.slice(1) if wrong == "fewer" else table.take([1, *range(1, len(table))])

    monkeypatch.setattr(file_compaction, "_rows", writing)
    with pytest.raises(UnwritableError, match="does not have the rows before"):
        merge(log, to, FILES)
    monkeypatch.undo()
    assert of_table(to) == names
    assert rows_of(to) == rows(0, 129)
    assert merge(log, to, FILES).merged.into == 1


def test_values_that_do_not_equal_themselves() -> None:
    """Not a number is the same value before and after."""
    table = pa.table({"n": [1.0, float("nan"), None]})
    assert file_compaction._are_equal(table, pa.table({"n": [1.0, float("nan"), None]}))
    assert not file_compaction._are_equal(table, pa.table({"n": [1.0, float("nan"), 2.0]}))


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EXDEV])
def test_file_systems_that_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The error says so after the commit, and the table stays as it is."""
    log, to = table_of_many(tmp_path, FILES)

    def failing(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(kafkalog.storage.file_tree, "exchange", failing)
    kind = UnsupportedError if number == errno.EINVAL else UnwritableError
    with pytest.raises(kind):
        merge(log, to, FILES)
    assert rows_of(to) == rows(0, 129)
    assert counting(to) == of_table(to)
    assert (to / "_SUCCESS").exists()
    assert {one.name for one in tmp_path.iterdir()} == {"log", "lake"}


def test_the_command(tmp_path: Path, kafkalog: Kafkalog) -> None:
    """It reports what was merged."""
    log, to = table_of_many(tmp_path, FILES)
    words = ("export", log, "--to", to, "--append")
    result = kafkalog(*words, "--compact-below", "1MiB", "--format", "ndjson")
    assert result.status == 0, result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    assert (summary["merged_files"], summary["merged_into"], summary["rows"]) == (11, 1, 3)
