"""A broker deletes a topic, or its oldest segment, between any two calls of a reader.

The answer is that of the files as they are then: no error, and all rows of the other partitions.

Or it moves a partition to another log directory, creates its topic again, rolls or cleans: then the
answer is that of before or that of after, or the status says that it is neither.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.checkout import ROOT
from tests.conftest import Result
from tests.kafkalog.wire.server.protocol import Connected, serving
from tests.kafkalog.wire.server.test_fetch import fetch
from tests.kafkalog.wire.server.test_recreated import id_of
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Result]
    Change = Callable[[Path], None]

EXAMPLE = ROOT / "examples" / "log-dir"
VICTIM = "orders-0"
LINES = {
    "ls": "ls {dir} --format ndjson",
    "dump": "dump-segment {dir} --format ndjson",
    "find": "find {dir} --value-regex . --format ndjson",
    "lookup": "lookup-offset {dir} --timestamp 0 --format ndjson",
    "diff": "diff {side} {example} --all --format ndjson",
    "groups": "groups {dir} --format ndjson",
    "transactions": "transactions {dir} --now 0 --format ndjson",
    "report": "report {dir} --now 0 --to {to}",
    "simulate": "retention {dir} --config retention.ms=1 --now 0 --format ndjson",
    "sql": "sql -c SELECT {dir} --format ndjson",
}
MORE = {
    "export": "export {dir} --to {to} --file-format ndjson --format ndjson",
    "append": "export {dir} --to {to} --append --file-format ndjson --format ndjson",
    "profile": "profile {dir} --format ndjson",
    "verify": "verify {dir} --format ndjson",
    "metadata": "metadata {metadata} --format ndjson",
    "du": "du {dir} --format ndjson",
    "serve": "",
    "groups-own": "groups {dir} --format ndjson",
    "transactions-own": "transactions {dir} --now 0 --format ndjson",
}
"""Those for which a log directory that only loses something is a case of other tests."""
OWN = {"groups-own": "__consumer_offsets-1", "transactions-own": "__transaction_state-0"}
"""The partition that moves, where it is another one."""
OF_NOW = {"ls", "groups", "transactions", "report", "simulate", "verify", "du"}
"""Commands about what has a name, whichever topic it is of: another one is no reason to fail."""


def deleted(partition: Path) -> None:
    """Delete the topic as a broker does: the directory gets another name first."""
    partition.rename(partition.with_name(f"{VICTIM}.0123456789abcdef0123456789abcdef-delete"))


def removed(partition: Path) -> None:
    shutil.rmtree(partition)


def shortened(partition: Path) -> None:
    """Delete the oldest segment, as retention does."""
    for path in partition.glob(f"{0:020d}.*"):
        path.unlink()


class Changes:
    """Changes a partition before one of the calls about its files, after it was listed.

    Attributes:
        calls: how many such calls there were.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, partition: Path, change: Change, before: int | None
    ) -> None:
        self.calls = 0
        self._partition, self._change, self._before = partition, change, before
        self._is_listed = False
        for name in ("open", "stat", "lstat", "listdir", "scandir"):
            patch.setattr(os, name, self._wrapped(getattr(os, name), is_listing="dir" in name))

    def _wrapped(self, call: Callable[..., Any], *, is_listing: bool) -> Callable[..., Any]:
        def wrapped(path: Any = ".", *args: Any, **options: Any) -> Any:
            whole = str(self._partition)
            is_about = str(path) == whole or str(path).startswith(f"{whole}/")
            if is_about and self._is_listed:
                if self.calls == self._before:
                    self._is_listed = False  # what the change itself calls
                    self._change(self._partition)
                    self._before = None
                self.calls += 1
            result = call(path, *args, **options)
            self._is_listed |= is_listing and str(path) == whole and self._before is not None
            return result

        return wrapped


def others(done: Result) -> set[bytes]:
    """Return the rows about the other partitions."""
    about = (b"orders", b"log_dir", b"summary", b"group", b"PAGE", b"/to ")  # sums, too
    return {row for row in done.stdout.splitlines() if not any(one in row for one in about)}


def words_of(name: str, dirs: list[Path], **places: Path) -> list[str]:
    """Return the words of a line about log directories."""
    found: list[str] = []
    for word in (LINES | MORE)[name].split():
        if word == "{dir}":
            found += map(str, dirs)
        else:
            found.append("select * from records" if word == "SELECT" else word.format(**places))
    return found


def try_change(
    name: str, change: Change, before: int | None, tmp_path: Path, kafkalog: Run
) -> tuple[Result, int]:
    """Run a line over a directory in which a partition is changed before one of the calls."""
    log_dir, to = tmp_path.resolve() / "log-dir", tmp_path / "to"
    shutil.rmtree(log_dir, ignore_errors=True)
    shutil.copytree(EXAMPLE, log_dir)
    to.unlink(missing_ok=True)
    words = words_of(name, [log_dir], side=log_dir, to=to, example=EXAMPLE)
    with pytest.MonkeyPatch.context() as patch:
        changes = Changes(patch, log_dir / VICTIM, change, -1 if before is None else before)
        return kafkalog(*words), changes.calls


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("change", [deleted, removed, shortened])
@pytest.mark.parametrize("name", LINES)
def test_a_vanishing_file_is_no_error(name: str, change: Change, tmp_path: Path, kafkalog: Run):
    whole, count = try_change(name, change, None, tmp_path, kafkalog)
    assert whole.status in (0, 1), whole
    assert count > 10
    parts = [0, 0.25, 0.4, 0.55, 0.7, 0.85, 1]
    if not tries_everything():
        parts = sorted(drawn_for(f"{name} {change.__name__}").sample(parts, 2))
    for part in parts:
        before = round(part * (count - 1))
        done, _ = try_change(name, change, before, tmp_path, kafkalog)
        # A copy that is gone on one side is a difference, and a report says what is absent.
        is_finding = name in ("diff", "sql", "report")
        assert done.status in ((0, 1) if is_finding else (0,)), (before, done)
        assert others(done) >= others(whole), (before, done)


def test_what_is_in_another_place_now_is_not_said_to_be_deleted(tmp_path: Path, kafkalog: Run):
    """It is given as well, but was listed before the partition came there: rows are missing."""
    one, other = tmp_path.resolve() / "one", tmp_path.resolve() / "other"
    for before in (20, 30, 40):
        for path in (one, other):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(EXAMPLE, one)
        shutil.copytree(EXAMPLE, other, ignore=shutil.ignore_patterns(VICTIM))
        with pytest.MonkeyPatch.context() as patch:
            Changes(patch, one / VICTIM, lambda path: shutil.move(path, other / VICTIM), before)
            done = kafkalog("dump-segment", other, one, "--topic", "orders", "--format", "ndjson")
        assert done.status == 3 or len(done.stdout.splitlines()) == 1000, (before, done)


UUID = "0123456789abcdef0123456789abcdef"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAg"


def moved(one: Path, other: Path, name: str) -> None:
    """Rename it across, as if a broker had done all of it at once."""
    (one / name).rename(other / name)


def promoted(one: Path, other: Path, name: str) -> None:
    """Take the copy that was made in the other directory, as a broker does at the end of a move."""
    (other / f"{name}.{UUID}-future").rename(other / name)
    deleted(one / name)


def recreated(one: Path, _other: Path, name: str) -> None:
    """Delete the topic, and create another one of its name."""
    deleted(one / name)
    created(one, name)


def recreated_elsewhere(one: Path, other: Path, name: str) -> None:
    deleted(one / name)
    created(other, name)


def created(log_dir: Path, name: str) -> None:
    partition = log_dir / name
    partition.mkdir()
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}")
    for path in (EXAMPLE / "payments-0").glob(f"{0:020d}.*"):
        if name == VICTIM:  # else it is empty
            shutil.copy2(path, partition)


def rolled(one: Path, _other: Path, name: str) -> None:
    for suffix in ("log", "index", "timeindex"):
        path = one / name / f"{1000:020d}.{suffix}"
        path.touch()
        os.utime(path, (0, 0))


def cleaned(one: Path, _other: Path, name: str) -> None:
    """Rename a cleaned segment over the old one; nothing was superseded in it."""
    path = one / name / f"{250:020d}.log"
    shutil.copy2(path, swap := path.with_suffix(".log.swap"))
    swap.rename(path)


MOVES = [moved, promoted, recreated, recreated_elsewhere]
STORMS = [(name, move) for name in LINES | MORE for move in MOVES]
STORMS += [(name, one) for name in LINES | MORE if name not in OWN for one in (rolled, cleaned)]


def make_node(place: Path, name: str, *, with_future: bool) -> tuple[Path, Path]:
    """Make a node of two log directories that was shut down cleanly; one has the partition."""
    shutil.rmtree(place, ignore_errors=True)
    one, other = place / "one", place / "other"
    shutil.copytree(EXAMPLE, one)
    other.mkdir()
    shutil.move(one / "customers-0", other)
    (one / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    shutil.copy(one / ".kafka_cleanshutdown", other)
    properties = (one / "meta.properties").read_text()
    (other / "meta.properties").write_text(
        re.sub("directory.id=.*", "directory.id=PvADd3761ZgRxGb_AYNLjg", properties)
    )
    for path in EXAMPLE.glob("*-checkpoint"):
        lines = path.read_text().splitlines()[2:]
        # A broker that moves a partition notes it in both before long.
        lines = [one for one in lines if one.split()[0] in ("customers", name[:-2])]
        (other / path.name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    if with_future:
        shutil.copytree(one / name, other / f"{name}.{UUID}-future")
    return one, other


class Storm:
    """Makes a change before one of the calls about files below a directory.

    Attributes:
        calls: how many such calls there were.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        root: Path,
        change: Callable[[], None],
        before: int | None,
    ) -> None:
        self.calls = 0
        self._root, self._change, self._before = str(root), change, before
        for name in ("open", "stat", "lstat", "listdir", "scandir", "pread", "preadv"):
            patch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Any = ".", *args: Any, **options: Any) -> Any:
            if isinstance(path, int) or str(path).startswith(self._root):
                is_now, self.calls = self.calls == self._before, self.calls + 1
                if is_now:
                    self._before = None  # the change itself calls, too
                    self._change()
            return call(path, *args, **options)

        return wrapped


def fetched(dirs: list[Path]) -> Result:
    """Fetch the topic by its id to the end, as a client that asks again after an error."""
    found: list[bytes] = []
    with (
        warnings.catch_warnings(action="ignore"),  # of a topic that the metadata do not know
        serving(*dirs, follow=True, high_watermark="end") as running,
        Connected(running.address) as client,
    ):
        topic_id, offset, errors = id_of(client, "orders"), 0, 0
        while errors < 3:
            answer = fetch(client, topic_id, 0, offset, version=13)
            if answer["errorCode"]:
                errors += 1
                now = id_of(client, "orders")
                if now != topic_id and found:
                    break  # a client starts over
                topic_id = now
                continue
            if not answer["records"]:
                return Result(0, b"\n".join(found), "")
            at, data = 0, answer["records"]
            while at + 61 <= len(data) and at + (
                size := struct.unpack_from(">qi", data, at)[1]
            ) + 12 <= len(data):
                base, _, _, _, crc, _, last = struct.unpack_from(">qiibIhi", data, at)
                found.append(b"orders %d %d %x" % (base, base + last, crc))
                offset, at = base + last + 1, at + size + 12
    return Result(3, b"\n".join(found), f"error {answer['errorCode']}")


def answer_of(name: str, done: Result, to: Path, dirs: list[Path]) -> Counter[bytes]:
    """Return the lines that a run gives, without places, times, and sums per directory."""
    made = sorted(to.rglob("*.ndjson")) if to.is_dir() else [to] if to.is_file() else []
    said = b"\n".join([done.stdout, *(path.read_bytes() for path in made)])
    for path in dirs:
        said = said.replace(bytes(path), b"DIR")
    said = re.sub(rb'"(modified_timestamp|read_bytes|disk_bytes)":[0-9]+', b"", said)
    lines = said.splitlines()
    if name == "report":  # times are of the segments whose headers were read in one piece
        lines = [one for one in lines if b'data-order="DIR/orders-0"' in one]
        lines = [re.sub(rb'<td data-order="-?[0-9]+" class="t">[^<]*', b"", one) for one in lines]
    # What is to be deleted, or to become the partition, comes and goes.
    passing = (b"-delete", b"-future", b'"type":"log_dir"', b"summary", b"disk_usage_total")
    return Counter(one for one in lines if not any(word in one for word in (*passing, b"PAGE")))


@pytest.mark.sampled(14)
@pytest.mark.parametrize(("name", "change"), STORMS)
def test_a_storm_of_moves(
    name: str, change: Callable[[Path, Path, str], None], tmp_path: Path, kafkalog: Run
):
    """Either answer is right, and a mixture of both is none."""
    place, to, victim = tmp_path.resolve() / "node", tmp_path / "to", OWN.get(name, VICTIM)
    rng = drawn_for(f"{name} {change.__name__}")
    is_other = change in (recreated, recreated_elsewhere)

    def run(before: int | None, *, first: bool = False) -> tuple[Result, Counter[bytes], int]:
        shutil.rmtree(to, ignore_errors=True)
        to.unlink(missing_ok=True)
        one, other = make_node(place, victim, with_future=change is promoted)
        dirs = [one, other] if rng.random() < 0.5 else [other, one]
        words = words_of(name, dirs, side=place, metadata=one, to=to, example=EXAMPLE)
        if first:
            change(one, other, victim)
        with pytest.MonkeyPatch.context() as patch:
            storm = Storm(patch, place, lambda: change(one, other, victim), before)
            done = kafkalog(*words) if words else fetched(dirs)
        return done, answer_of(name, done, to, [one, other]), storm.calls

    whole, as_before, count = run(None)
    _, as_after, _ = run(None, first=True)
    assert whole.status in (0, 1), whole
    assert as_before
    assert count > 10
    for before in sorted(rng.sample(range(count), 16 if tries_everything() else 3)):
        done, answer, _ = run(before)
        # What stays somewhere is no reason to fail, but for coordinators' own topics.
        may_fail = (is_other and name not in OF_NOW) or name in OWN
        # 8, too: the checkpoint is still that of the topic before, whose log went further.
        failing = (0, 1, 8) if name == "find" else (0, 1, 3, 4, 8)
        assert done.status in (whole.status, *(failing if may_fail else ())), (before, done)
        if done.status not in (0, whole.status):
            assert done.stderr or b"deleted-while-reading" in done.stdout, (before, done)
        elif name == "verify":  # each finding is one of before or of after
            assert answer <= as_before + as_after, (before, done)
        elif name == "report" and is_other:  # it looks several times, and shows one partition
            assert sum(b"<td>live</td>" in one for one in answer) == 1, (before, done)
        else:
            missing = [
                (list(wanted - answer)[:3], list(answer - wanted)[:3])
                for wanted in (as_before, as_after)
            ]
            assert answer in (as_before, as_after), (before, done.stderr, missing)
