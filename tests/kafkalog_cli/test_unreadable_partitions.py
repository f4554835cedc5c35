"""A partition that cannot be read costs itself: the rest is done, and the status says so."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import INCOMPLETE
from tests.checkout import ROOT
from tests.nodes import write_node
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conftest import Result

    Run = Callable[..., Result]

EXAMPLE = ROOT / "examples" / "log-dir"
VICTIM = "customers-0"
LINES = {
    "ls": "ls {dir} --format ndjson",
    "dump": "dump-segment {dir} --format ndjson",
    "find": "find {dir} --value-regex . --format ndjson",
    "lookup": "lookup-offset {dir} --timestamp 0 --format ndjson",
    "retention": "retention {dir} --config retention.ms=1 --now 0 --format ndjson",
    "compact": "compact {dir} --all --now 0 --format ndjson",
    "recover": "recover {dir} --now 0 --format ndjson",
    "rebuild-index": "rebuild-index {dir} --now 0 --format ndjson",
    "profile": "profile {dir} --format ndjson",
    "sql": "sql -c SELECT {dir} --format ndjson",
    "replay": "replay {dir} --dry-run --format ndjson",
    "salvage-plan": "salvage {dir} --format ndjson",
    "salvage": "salvage {dir} --to {to} --format ndjson",
    "export": "export {dir} --file-format ndjson --to {to} --format ndjson",
    "append": "export {dir} --file-format ndjson --append --to {to} --format ndjson",
}
OF_TOPIC = ("dump", "find", "lookup", "profile", "replay", "export", "append")


def unlistable(partition: Path, patch: pytest.MonkeyPatch) -> None:
    """Refuse to list the directory, as one of mode 000 refuses all but root."""
    for name in ("listdir", "scandir", "stat", "lstat", "open"):
        real, lists = getattr(os, name), name in ("listdir", "scandir")

        def refuses(
            path: Any = ".", *args: Any, real: Any = real, lists: bool = lists, **options: Any
        ) -> Any:
            if str(path if lists else os.path.dirname(str(path))) == str(partition):
                raise PermissionError(13, "Permission denied", path)
            return real(path, *args, **options)

        patch.setattr(os, name, refuses)


def failing(partition: Path, patch: pytest.MonkeyPatch) -> None:
    """Refuse to open its log."""
    real, log = os.open, str(log_of(partition))

    def refuses(path: Any, *args: Any, **options: Any) -> int:
        if str(path) == log:
            raise OSError(5, "Input/output error", path)
        return real(path, *args, **options)

    patch.setattr(os, "open", refuses)


def device(partition: Path, _: pytest.MonkeyPatch) -> None:
    log_of(partition).unlink()
    log_of(partition).symlink_to("/dev/zero")


def pipe(partition: Path, _: pytest.MonkeyPatch) -> None:
    log_of(partition).unlink()
    os.mkfifo(log_of(partition))


def broken_link(partition: Path, _: pytest.MonkeyPatch) -> None:
    log_of(partition).unlink()
    log_of(partition).symlink_to("/nowhere/at/all")


def directory(partition: Path, _: pytest.MonkeyPatch) -> None:
    log_of(partition).unlink()
    log_of(partition).mkdir()


KINDS = (unlistable, failing, device, pipe, broken_link, directory)


def kinds_for(what: str) -> Sequence[Callable[..., None]]:
    """Return all kinds, or two that are drawn for one of the proofs."""
    return KINDS if tries_everything() else drawn_for(what).sample(KINDS, 2)


def log_of(partition: Path) -> Path:
    return partition / "00000000000000000000.log"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLE, tmp_path.resolve() / "log-dir")


def words_of(name: str, log_dir: Path, to: Path, *more: str) -> list[str]:
    shutil.rmtree(to, ignore_errors=True)
    query = 'select topic, partition, "offset", value from records order by all'
    found = [word.format(dir=log_dir, to=to) for word in LINES[name].split()]
    return [query if word == "SELECT" else word for word in found] + list(more)


def rows_of(done: Result) -> set[bytes]:
    """Return the rows that are about other partitions, without those about the whole run."""
    about_all = (b'{"type":"log_dir"', b"_summary")
    rows = done.stdout.splitlines()
    return {row for row in rows if not any(one in row for one in (b"customers", *about_all))}


def files_of(to: Path) -> dict[str, bytes]:
    """Return the files that a run wrote, without those about the whole run."""
    return {
        str(path.relative_to(to)): path.read_bytes()
        for path in to.rglob("*")
        if path.is_file() and path.suffix in (".ndjson", ".log") and path.name != "manifest.ndjson"
        and "customers" not in str(path)
    }  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_it_costs_itself(name: str, log_dir: Path, tmp_path: Path, kafkalog: Run):
    """Rows and files of the others are those of a run over a directory without it."""
    to = tmp_path / "to"
    whole = kafkalog(*words_of(name, log_dir, to))
    assert whole.status == 0, whole
    files = files_of(to)
    for spoil in kinds_for(name):
        shutil.rmtree(log_dir)
        shutil.copytree(EXAMPLE, log_dir)
        with pytest.MonkeyPatch.context() as patch:
            spoil(log_dir / VICTIM, patch)
            done = kafkalog(*words_of(name, log_dir, to))
        assert done.status == INCOMPLETE, (spoil, done)
        assert str(log_dir / VICTIM) in done.stderr + done.stdout.decode(), (spoil, done)
        assert rows_of(done) == rows_of(whole), spoil
        assert files_of(to) == files, spoil


@pytest.mark.parametrize("name", OF_TOPIC)
def test_it_is_not_touched_for_another_topic(
    name: str, log_dir: Path, tmp_path: Path, kafkalog: Run
):
    to = tmp_path / "to"
    whole = kafkalog(*words_of(name, log_dir, to, "--topic", "orders"))
    assert whole.status == 0, whole
    for spoil in kinds_for(f"{name} of a topic"):
        shutil.rmtree(log_dir)
        shutil.copytree(EXAMPLE, log_dir)
        with pytest.MonkeyPatch.context() as patch:
            spoil(log_dir / VICTIM, patch)
            done = kafkalog(*words_of(name, log_dir, to, "--topic", "orders"))
        assert (done.status, done.stdout, done.stderr) == (0, whole.stdout, whole.stderr), spoil


def test_an_export_is_incomplete_without_it(log_dir: Path, tmp_path: Path, kafkalog: Run):
    """No `_SUCCESS`; and where it is to be read again, the export does not pretend to have it."""
    to = tmp_path / "to"
    words = words_of("export", log_dir, to)
    with pytest.MonkeyPatch.context() as patch:
        failing(log_dir / VICTIM, patch)
        kafkalog(*words)
        assert not (to / "_SUCCESS").exists()
        assert kafkalog(*words).status != 0
    manifest = json.loads((to / "_kafkalog" / "manifest.json").read_text())
    assert manifest["lacking"] == [str(log_dir / VICTIM)]
    assert kafkalog(*words).status == 4
    assert not (to / "_SUCCESS").exists()


def test_an_appending_export_continues_it(log_dir: Path, tmp_path: Path, kafkalog: Run):
    """It is neither gone nor passed over: the next commit that can read it has all of it."""
    to = tmp_path / "to"
    words = words_of("append", log_dir, to)
    for spoil in (unlistable, failing):
        with pytest.MonkeyPatch.context() as patch:
            spoil(log_dir / VICTIM, patch)
            assert kafkalog(*words).status == INCOMPLETE
    done = kafkalog(*words)
    assert done.status == 0, done
    rows = [
        json.loads(line)
        for path in to.rglob("*.ndjson")
        if "topic=customers" in str(path)
        for line in path.read_text().splitlines()
    ]
    assert len({row["offset"] for row in rows}) == len(rows) == 60
    commits = sorted((to / "_kafkalog" / "commits").iterdir())
    assert all(not json.loads(one.read_text())["increment"]["gaps"] for one in commits)
    assert all(not json.loads(one.read_text())["increment"]["gone"] for one in commits)
    with pytest.MonkeyPatch.context() as patch:  # what was read stays where it was
        unlistable(log_dir / VICTIM, patch)
        assert kafkalog(*words).status == INCOMPLETE
    assert kafkalog(*words).status == 0


def test_a_small_file_that_cannot_be_read_costs_no_record(
    log_dir: Path, tmp_path: Path, kafkalog: Run
):
    """Leader epochs are in the batches as well."""
    epochs = log_dir / VICTIM / "leader-epoch-checkpoint"
    epochs.unlink()
    epochs.symlink_to("/dev/zero")
    done = kafkalog(*words_of("salvage", log_dir, tmp_path / "to"))
    assert done.status == 0, done
    rescued = tmp_path / "to" / "log" / VICTIM / log_of(Path()).name
    assert rescued.read_bytes() == log_of(EXAMPLE / VICTIM).read_bytes()


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("spoil", [failing, device, pipe, broken_link, directory])
@pytest.mark.parametrize("more", [(), ("--salvage",), ("--copy", "copy")])
def test_a_source_of_a_resurrection_that_cannot_be_read(
    spoil: Any, more: tuple[str, ...], log_dir: Path, tmp_path: Path, kafkalog: Run
):
    """It is named, not the target; only its topic is left out, and the disk is not filled."""
    with pytest.MonkeyPatch.context() as patch:
        spoil(log_dir / VICTIM, patch)
        done = kafkalog("resurrect", log_dir, "--to", tmp_path / "to", *more)
        assert done.status == INCOMPLETE, done
        named = f"{log_of(log_dir / VICTIM)} cannot be read: "
        assert " ".join(named.split()) in " ".join(done.stdout.decode().split())
        made = {path.name for path in (tmp_path / "to" / "log").iterdir() if path.is_dir()}
        assert (VICTIM in made, "orders-0" in made) == (False, True)
        words = ("resurrect", log_dir, "--to", tmp_path / "none", "--topic", "customers", *more)
        assert kafkalog(*words).status == 3
        assert not (tmp_path / "none").exists()
        done = kafkalog("resurrect", log_dir, "--to", tmp_path / "one", "--topic", "orders", *more)
    assert done.status == 0, done


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("verify {d1} {d2}", INCOMPLETE),
        ("verify {d1} {d2} --topic payments", 3),
        ("recover {d1} {d2}", INCOMPLETE),
        ("diff {copy} {node}", INCOMPLETE),
        ("export {d1} {d2} --file-format ndjson --to {to}", INCOMPLETE),
    ],
)
def test_nothing_is_said_of_what_is_in_it(
    line: str, status: int, tmp_path: Path, kafkalog: Run
) -> None:
    """It is there: no start would create it, make a stray of it or lack it."""
    node = write_node(tmp_path.resolve() / "node")
    copy = shutil.copytree(node, tmp_path / "copy")
    words = line.format(node=node, d1=node / "d1", d2=node / "d2", copy=copy, to=tmp_path / "to")
    with pytest.MonkeyPatch.context() as patch:
        unlistable(node / "d2" / "payments-0", patch)
        done = kafkalog(*words.split())
    assert done.status == status, done
    said = done.stderr + done.stdout.decode()
    assert f"{node}/d2/payments-0" in said
    for claim in ("create", "stray", "checkpoint-entry-left", "only in"):
        assert claim not in said, done


def test_a_recovery_opens_each_log(log_dir: Path, kafkalog: Run):
    """As a start of a broker does: it opens all segments, even if it scans none."""
    (log_dir / VICTIM / "00000000000000000060.log").touch()
    assert kafkalog("recover", log_dir, "--scan", "none").status == 0
    index = log_dir / "orders-0" / "00000000000000000000.index"
    index.unlink()
    before = files_in(log_dir / VICTIM)
    for more in ((), ("--apply",)):
        with pytest.MonkeyPatch.context() as patch:
            failing(log_dir / VICTIM, patch)
            done = kafkalog("recover", log_dir, "--scan", "none", "--format", "ndjson", *more)
        status = (done.status, str(log_of(log_dir / VICTIM)) in done.stderr)
        assert status == (INCOMPLETE, True), done
        assert index.exists() == bool(more), "the others are recovered"
        assert files_in(log_dir / VICTIM) == before


def files_in(partition: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in partition.iterdir()}
