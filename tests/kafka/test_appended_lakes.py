"""Tables that grow next to a working broker: each record once, each gap named.

The broker rolls, cleans, deletes by size, moves log starts, and creates and deletes topics, one of
them repeatedly under the same name. Runs of `export --append` begin at random moments, and many are
killed. The offset of a row determines its value, and a consumer says which records exist in the
end.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.exceptions import NoSuchTableError

from tests.kafka.test_living_broker import living_broker
from tests.kafkalog.change.lake.appending import TABLE, iceberg
from tests.kafkalog.change.lake.exporting import table_of
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.kafka

RUNS: Final = 100 if tries_everything() else 3
KEPT: Final = ("steady", "ledger")
"""Nothing is deleted of these."""
COLUMNS: Final = ["offset", "value"]
NUMBERED: Final = ("steady", "retained", "trimmed", "again")
"""Each offset has a record, whose value begins with it."""


@dataclass
class Commit:
    """The offsets of one commit, and the rows that it adds: partition, offset and value."""

    increment: dict[str, Any]
    lost: list[dict[str, Any]] = field(default_factory=list)
    rows: list[tuple[str, int, bytes]] = field(default_factory=list)


class Table:
    """One of the tables, and the runs that add to it."""

    def __init__(self, log_dir: Path, place: Path, form: str) -> None:
        self.place, self.form = place, form
        to = (
            ("--to", place)
            if form != "iceberg"
            else ("--to", TABLE, "--as", "iceberg", "--set", f"warehouse={place}")
        )
        self._words = [
            sys.executable, "-m", "kafkalog_cli", "export", log_dir, *to, "--append",
            "--as", form, "--isolation", "read_committed", "--format", "ndjson",
        ]  # fmt: skip
        self.killed = 0

    def run(self, *words: str, kill_after_s: float | None = None) -> int:
        """Start one run; kill it if it takes longer."""
        process = subprocess.Popen(
            [*self._words, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            _, errors = process.communicate(timeout=kill_after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            _, errors = process.communicate()
        self.killed += process.returncode == -signal.SIGKILL
        assert process.returncode in (0, 8, 4, -signal.SIGKILL), errors
        assert "Traceback" not in errors
        return process.returncode

    def commits(self) -> list[Commit]:
        """Return all commits, in order."""
        if self.form == "iceberg":
            return list(self._snapshots())
        places = sorted((self.place / "_kafkalog" / "commits").iterdir())
        made = [json.loads(place.read_text()) for place in places]
        return [self._commit(fields) for fields in made]

    def _commit(self, fields: dict[str, Any]) -> Commit:
        made = Commit(fields["increment"])
        for part in fields["parts"]:
            made.lost += part["defects"]
            if part["file"] is not None:
                assert unquote(part["file"].split("/")[0]) == f"topic={part['topic']}"
                name = f"{part['topic']}-{part['partition']}"
                for row in pq.ParquetFile(self.place / part["file"]).read(COLUMNS).to_pylist():
                    made.rows.append((name, row["offset"], row["value"]))
        return made

    def _snapshots(self) -> Iterator[Commit]:
        """Yield the properties of each snapshot, and the rows in the files that it added."""
        table = iceberg(self.place)
        for snapshot in sorted(table.snapshots(), key=lambda one: one.sequence_number):
            said = snapshot.summary.additional_properties
            if "kafkalog.increment" not in said:  # others have merged files
                continue
            made = Commit(json.loads(said["kafkalog.increment"]))
            made.lost += json.loads(said.get("kafkalog.defects", "[]"))
            added = [
                entry.data_file.file_path.removeprefix("file://")
                for manifest in snapshot.manifests(table.io)
                for entry in manifest.fetch_manifest_entry(table.io)
                if entry.snapshot_id == snapshot.snapshot_id
            ]
            for path in added:
                for row in pq.ParquetFile(path).read(["topic", "partition", *COLUMNS]).to_pylist():
                    name = f"{row['topic']}-{row['partition']}"
                    made.rows.append((name, row["offset"], row["value"]))
            yield made

    def merge(self) -> None:
        """Merge small files, as other programs do; runs that were killed early left none."""
        if not self.place.exists():
            return
        with suppress(NoSuchTableError):
            if self.form == "iceberg" and len(iceberg(self.place).inspect.files()) > 1:
                iceberg(self.place).overwrite(iceberg(self.place).scan().to_arrow())
            if self.form == "delta" and DeltaTable.is_deltatable(str(self.place)):
                DeltaTable(self.place).optimize.compact()

    def rows(self) -> dict[str, list[tuple[int, bytes]]]:
        """Return offset and value of all rows, by topic, as readers of the table find them."""
        if self.form == "iceberg":
            table = iceberg(self.place).scan().to_arrow()
        elif self.form == "delta":
            table = DeltaTable(self.place).to_pyarrow_table()
        else:
            table = table_of(self.place)
        found = defaultdict(list)
        for row in table.to_pylist():
            found[row["topic"]].append((row["offset"], row["value"]))
        return found


def require_chained(commits: list[Commit]) -> None:
    """Require that each commit begins where the one before ended."""
    ends = [{}, *(commit.increment["end"] for commit in commits)]
    assert [commit.increment["start"] for commit in commits] == ends[:-1]
    assert [commit.increment["number"] for commit in commits] == list(range(len(commits)))


def parts_and_gaps(
    commits: list[Commit],
) -> tuple[dict[str, dict[int, bytes]], dict[str, set[int]], list[dict[str, Any]]]:
    """Return rows and offsets of gaps by topic and id, as the commits have them, and all gaps."""
    rows: dict[str, dict[int, bytes]] = defaultdict(dict)
    missing: dict[str, set[int]] = defaultdict(set)
    gaps = []
    for commit in commits:
        increment = commit.increment
        keys = {key.partition("@")[0]: key for key in increment["end"]
                if key not in increment["gone"]}  # fmt: skip
        for one in commit.lost:
            assert one["reference"] == "deleted-while-reading"
            said = re.match("Offsets ([0-9]+) to ([0-9]+) of (.*) were deleted", one["detail"])
            assert said is not None, one
            missing[keys[said[3]]] |= set(range(int(said[1]), int(said[2]) + 1))
        for name, offset, value in commit.rows:
            assert offset not in rows[keys[name]], "a row is there twice"
            rows[keys[name]][offset] = value
        for gap in increment["gaps"]:
            gaps.append(gap)
            key = f"{gap['topic']}-{gap['partition']}@{gap['topic_id']}"
            if gap["last_offset"] is not None:
                missing[key] |= set(range(gap["first_offset"], gap["last_offset"] + 1))
    return rows, missing, gaps


def require_complete(table: Table, consumed: dict[str, dict[int, bytes]]) -> None:
    """Require each record once, with its value, and a gap for each missing one.

    The first commit begins where the logs begin at that time; later ones report everything that
    they miss.
    """
    commits = table.commits()
    require_chained(commits)
    rows, missing, gaps = parts_and_gaps(commits)
    first, end = (commits[n].increment["end"] for n in (0, -1))
    by_topic = defaultdict(list)
    for key, values in rows.items():
        by_topic[key.partition("@")[0].rpartition("-")[0]] += values.items()
    found = table.rows()
    assert {topic: sorted(values) for topic, values in found.items()} == {
        topic: sorted(values) for topic, values in by_topic.items()
    }
    for key, values in rows.items():
        topic = key.rpartition("-")[0] if "@" not in key else key.partition("@")[0][:-2]
        assert not missing[key] & values.keys(), key
        if topic in NUMBERED:
            assert {offset: int(value.split(b" ")[0]) for offset, value in values.items()} == {
                offset: offset for offset in values
            }
            known = values.keys() | missing[key]
            is_from_start = key not in first or topic in KEPT
            assert min(known) == 0 or not is_from_start, key
            last = end[key][0] if key in end else max(known) + 1
            assert known == set(range(min(known), last)), key
        if topic in KEPT:
            assert (values, missing[key]) == (consumed[topic], set())
        elif topic in consumed:
            for offset, value in consumed[topic].items():
                assert values.get(offset, value) == value
                assert (offset in values) != (offset in missing[key]), (topic, offset)
    gone = [gap for gap in gaps if gap["reason"] == "gone"]
    assert len({gap["topic_id"] for gap in gone}) == len(gone), "each is named once"
    assert {gap["topic"].partition("-")[0] for gap in gone} <= {"passing", "again"}
    for gap in gaps:
        if gap["reason"] == "deleted":
            assert gap["topic"] in ("retained", "trimmed"), gap
        assert gap["reason"] in ("gone", "deleted"), gap


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ["files", "delta", "iceberg"])
def test_tables_beside_a_working_broker(
    harness: None, tmp_path: Path, form: str, tell: Callable[[str], None]
) -> None:
    """A test has a few runs, and a soak a hundred; about half of them are killed."""
    assert harness is None
    seed = new_seed()
    sys.stderr.write(f"seed {seed}\n")
    chance = random.Random(seed)
    with living_broker(tmp_path, seed, "again") as broker:
        table = Table(broker.log_dir, tmp_path / "table", form)
        statuses = defaultdict(int)
        for _ in range(RUNS):
            time.sleep(chance.random() * 2)  # for the broker to go on: the runs are to differ
            kills = chance.random() < 0.5
            status = table.run(
                *(["--accept", "gaps"] if chance.random() < 0.7 else []),
                kill_after_s=0.4 + chance.random() * 2.5 if kills else None,
            )
            statuses[status] += 1
            if chance.random() < 0.4:
                table.merge()
        broker.rest()
        consumed = {
            topic: broker.consumed(topic)
            for topic in ("steady", "ledger", "compacted", "retained", "trimmed")
        }
    assert table.run("--accept", "gaps") in (0, 8)
    assert table.run() == 0, "nothing is new"
    require_complete(table, consumed)
    tell(f"appended to {form} beside a broker, seed {seed}: {len(table.commits())} commits by "
         f"{RUNS} runs: {dict(statuses)}")  # fmt: skip
