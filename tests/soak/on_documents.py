"""Targets that read back what kafkalog has written: journals, plans, manifests, states, results.

Each input is a sound document after edits: other names, ways out of the directory, absolute paths,
newlines, NUL, huge numbers, other types, deep nesting, doubled fields, links in the place of
directories. Nothing may be written outside of the log directory and the destination, and a refusal
comes before the first change, as one of our errors.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalog.change.compaction.staged import StagedPass, is_whole, plan_of_result, read_result
from kafkalog.change.journal import Run, undo
from kafkalog.change.lake import Export, ExportRequest, FileFormat, Writing
from kafkalog.check.schedule import History
from kafkalog.errors import CorruptDataError, KafkaLogError, RefusedError
from kafkalog.files.log_dir import open_partition
from kafkalog.io.codecs import crc32c
from kafkalog.io.storage import Changes
from kafkalog_cli.main import run
from tests.checkout import ROOT as CHECKOUT
from tests.soak.edits import PARTITION, ROOT, edited
from tests.soak.mutations import mutated
from tests.soak.target import Target
from tests.soak.watched import written_only_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.soak.real import Files
    from tests.soak.target import Place

OUTSIDE = "outside"
REFUSALS = {2, 3, 4, 5, 6}
STATUSES = {0, *REFUSALS}
_TIME_NS = 1_700_000_000_123_456_789
_CHECKPOINT = b"0\n2\nother 3 7\norders 0 2\n"


def laid_out(files: Files, place: Place) -> Path:
    """Write the files of an input to a fresh directory, with their times and modes."""
    root = place.put({}, "root")
    status = json.loads(files["status"])
    for name, target in json.loads(files.get("links", b"{}")).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target.replace(ROOT, str(root)))
    for name, data in files.items():
        if name in ("status", "links") or _is_behind_link(root, name):
            continue
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.replace(ROOT.encode(), str(root).encode()))
    for name, (mode, mtime_ns) in sorted(status.items(), reverse=True):
        if not _is_behind_link(root, name) and (root / name).exists():
            (root / name).chmod(mode)
            os.utime(root / name, ns=(mtime_ns, mtime_ns))
    return root


def _is_behind_link(root: Path, name: str) -> bool:
    path = root
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            return True
    return False


def taken(root: Path) -> Files:
    """Return a tree as an input, with its own path replaced."""
    files: Files = {}
    status = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file():
            files[name] = path.read_bytes().replace(str(root).encode(), ROOT.encode())
        facts = path.stat()
        status[name] = (stat.S_IMODE(facts.st_mode), facts.st_mtime_ns)
    files["status"] = json.dumps(status).encode()
    return files


def seen(path: Path) -> dict[str, Any]:
    """Return everything below a directory, without following links."""
    found: dict[str, Any] = {}
    for place, directories, names in os.walk(path):
        for name in (*directories, *names):
            inner = Path(place, name)
            facts = inner.lstat()
            data = inner.read_bytes() if stat.S_ISREG(facts.st_mode) else None
            found[str(inner)] = (facts.st_mode, facts.st_uid, facts.st_mtime_ns, data)
    return found


def refused(act: Callable[[], object]) -> KafkaLogError | None:
    """Call a function; return the refusal that it raises, or None."""
    try:
        act()
    except KafkaLogError as error:
        found = error
    else:
        return None
    assert found.exit_code in REFUSALS, repr(found)
    return found


# Journals and checkpoints -----------------------------------------------------------------------


class _StoppedError(Exception):
    pass


@cache
def _journals() -> tuple[Files, ...]:
    """Make log directories with the backup of a run: done, stopped, of a copy, being undone."""
    made = [_log_dir_of_run(is_copy=is_copy, is_stopped=is_stopped)
            for is_copy in (False, True) for is_stopped in (False, True)]  # fmt: skip
    undone = dict(made[0])
    line = {"type": "partition", "partition": PARTITION, "state": "undoing",
            "path": f"{ROOT}/log/{PARTITION}", "beside": f"orders-0.{'0' * 32}-delete"}  # fmt: skip
    undone["backup/journal.ndjson"] += json.dumps(line).encode() + b"\n"
    undone[f"log/orders-0.{'0' * 32}-delete/{0:020}.log.deleted"] = b"old"
    return (*made, undone)


def _log_dir_of_run(*, is_copy: bool, is_stopped: bool) -> Files:
    with tempfile.TemporaryDirectory() as top:
        root = Path(os.path.realpath(top))
        partition = root / "log" / PARTITION
        partition.mkdir(parents=True)
        for name in (f"{0:020}.log", f"{0:020}.index", f"{9:020}.log", "notes.txt"):
            (partition / name).write_bytes(name.encode())
            os.utime(partition / name, ns=(_TIME_NS, _TIME_NS))
        if not is_copy:
            (root / "log" / "meta.properties").write_bytes(b"version=1\n")
            (root / "log" / ".kafka_cleanshutdown").write_bytes(b"{}")
            for name in ("cleaner", "replication"):
                (root / "log" / f"{name}-offset-checkpoint").write_bytes(_CHECKPOINT)
        (root / OUTSIDE / PARTITION).mkdir(parents=True)
        (root / OUTSIDE / "authorized_keys").write_bytes(b"key")
        (root / OUTSIDE / PARTITION / f"{0:020}.log").write_bytes(b"other")
        log_dir = None if is_copy else str(root / "log")
        backup = str(root / "backup")
        with Run(log_dir, command="swap", backup=backup) as changing, suppress(_StoppedError):
            _swap(changing, partition, is_stopped=is_stopped)
        return taken(root)


def _swap(changing_run: Run, partition: Path, *, is_stopped: bool) -> None:
    names = [f"{0:020}.log", f"{0:020}.index"]
    with changing_run.partition(open_partition(str(partition)), names) as changing:
        changing.forget_clean_shutdown()
        for name in names:
            with changing.changes.create(f"{name}.cleaned") as file:
                file.write(b"new")
            changing.changes.rename(name, f"{name}.deleted")
        if is_stopped:
            raise _StoppedError
        for name in names:
            changing.changes.rename(f"{name}.cleaned", name)
            changing.changes.remove(f"{name}.deleted")
        changing.set_offset("cleaner-offset-checkpoint", 9)


def journal_input(rng: Random) -> Files:
    """Return a log directory and its backup with an edited document."""
    files = dict(rng.choice(_journals()))
    lines = files["backup/journal.ndjson"].decode().splitlines()
    kind = rng.randrange(12)
    if kind < 9:
        at = rng.randrange(len(lines))
        lines[at] = edited(lines[at], rng)
    elif kind == 9:
        checkpoints = [name for name in files if name.endswith("-checkpoint")]
        if checkpoints:
            name = rng.choice(checkpoints)
            files[name] = mutated(files[name], rng)
    if kind >= 10 or rng.random() < 0.1:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    files["backup/journal.ndjson"] = "".join(f"{line}\n" for line in lines).encode(
        "utf-8", "replace"
    )
    links = {"link": f"{ROOT}/log"}
    if rng.random() < 0.15:
        where = rng.choice(("backup/orders-0", "backup/checkpoints", "log/orders-0", "log",
                            "log/cleaner-offset-checkpoint", "log/.lock", "backup",
                            f"backup/orders-0/{0:020}.log",
                            f"log/orders-0.{'0' * 32}-delete"))  # fmt: skip
        links[where] = rng.choice((f"{ROOT}/outside", f"{ROOT}/outside/orders-0",
                                   f"{ROOT}/outside/authorized_keys"))  # fmt: skip
    files["links"] = json.dumps(links).encode()
    return files


def check_journal(files: Files, rng: Random, place: Place) -> None:
    """Undo, resume or refuse: nothing outside is touched, nothing stays half-finished."""
    root = laid_out(files, place)
    outside = seen(root / OUTSIDE)
    before = seen(root / "log")
    backup = str(root / "backup")

    def act() -> None:
        way = rng.random()
        if way < 0.05:
            assert run(["undo", backup, "--apply", "--yes"]) in STATUSES
        elif way < 0.8 or (root / "log").is_symlink():
            undo(backup, in_place=True)
        else:
            with Run(str(root / "log"), command="swap", backup=backup):
                pass

    with written_only_below(root / "log", root / "backup"):
        error = refused(act)
    assert seen(root / OUTSIDE) == outside
    if isinstance(error, CorruptDataError | RefusedError):
        after = seen(root / "log")
        after.pop(str(root / "log" / ".lock"), None)
        before.pop(str(root / "log" / ".lock"), None)
        assert after == before, repr(error)


# Exports ----------------------------------------------------------------------------------------

_LOG = CHECKOUT / "examples/log-dir/orders-0/00000000000000000000.log"
_TAKEN_UP = ("_kafkalog/plan.json", "_kafkalog/manifest.json", "_kafkalog/parts/00000000.json")


def _asked(root: Path) -> ExportRequest:
    return ExportRequest((str(root / "log"),), writing=Writing(FileFormat.NDJSON))


@cache
def _exports() -> tuple[Files, ...]:
    """Make a finished export, and one that was killed after its first file."""
    from kafkalog.io.engine import LocalEngine

    with tempfile.TemporaryDirectory() as top:
        root = Path(os.path.realpath(top))
        (root / "log" / PARTITION).mkdir(parents=True)
        shutil.copy(_LOG, root / "log" / PARTITION)
        (root / OUTSIDE).mkdir()
        (root / OUTSIDE / "authorized_keys").write_bytes(b"key")
        target = root / "to"
        with Export(_asked(root), str(target)) as export:
            plan = export.plan.as_bytes()
            export.run(LocalEngine(1))
            [part] = export.summary().parts
            plan_id = export.plan.id
        finished = taken(root)
        own = target / "_kafkalog"
        (target / "_SUCCESS").unlink()
        (own / "manifest.json").unlink()
        (own / "plan.json").write_bytes(plan)
        (own / "parts").mkdir()
        entry = {"plan": plan_id, "parts": [part.as_json()]}
        (own / "parts" / "00000000.json").write_text(json.dumps(entry))
        return finished, taken(root)


def export_input(rng: Random) -> Files:
    """Return an export with an edited document."""
    files = dict(rng.choice(_exports()))
    name = rng.choice([name for name in _TAKEN_UP if name in {key[3:] for key in files}])
    files[f"to/{name}"] = edited(files[f"to/{name}"].decode(), rng).encode("utf-8", "replace")
    links = {}
    if rng.random() < 0.15:
        where = rng.choice(("to/topic=orders", "to/_kafkalog/parts", "to/_kafkalog/building",
                            "to/_kafkalog", f"to/{name}"))  # fmt: skip
        links[where] = rng.choice((f"{ROOT}/outside", f"{ROOT}/outside/authorized_keys"))
    files["links"] = json.dumps(links).encode()
    return files


def check_export(files: Files, _rng: Random, place: Place) -> None:
    """Resume or refuse an export; the logs and all other files are only read."""
    from kafkalog.io.engine import LocalEngine

    root = laid_out(files, place)
    around = seen(root / OUTSIDE), seen(root / "log")

    def act() -> None:
        with Export(_asked(root), str(root / "to")) as export:
            if export.missing:
                export.run(LocalEngine(1))
            else:
                export.run(None)

    with written_only_below(root / "to"):
        refused(act)
    assert (seen(root / OUTSIDE), seen(root / "log")) == around


# Results of tasks -------------------------------------------------------------------------------


def _result() -> str:
    made = {"sources": [0], "base_offset": 0, "next_offset": 9, "next_base_offset": 9,
            "size_bytes": 3, "records": 1, "suffixes": [".log", ".index"]}  # fmt: skip
    names = (f"{0:020}.log.cleaned", f"{0:020}.index.cleaned")
    return json.dumps({
        "plan": {"path": f"{ROOT}/log/{PARTITION}", "request": {"now_ms": 1}},
        "sound": {"producers": [[1, None, 0]], "suits_kernels": True}, "keys": 1, "end_offset": 9,
        "tally": {"read_records": 2, "kept_records": 1, "read_bytes": 9, "bytes_written": 3,
                  "dropped": {"superseded": 1}},
        "groups": [made], "files": {name: [3, crc32c(b"new")] for name in names},
    })  # fmt: skip


def result_input(rng: Random) -> Files:
    """Return a directory staged by a task, with an edited result."""
    files = {
        f"log/{PARTITION}/{0:020}.log": b"old",
        f"log/{PARTITION}/{9:020}.log": b"",
        f"{OUTSIDE}/authorized_keys": b"key",
        f"log/staging/made/{0:020}.log.cleaned": b"new",
        f"log/staging/made/{0:020}.index.cleaned": b"new",
        "log/staging/made/result.json": edited(_result(), rng).encode("utf-8", "replace"),
        "status": b"{}",
    }
    links = {}
    if rng.random() < 0.1:
        links[rng.choice(("log/staging/made", f"log/staging/made/{0:020}.log.cleaned",
                          "log/staging/made/result.json"))] = f"{ROOT}/outside"  # fmt: skip
    return {**files, "links": json.dumps(links).encode()}


def check_result(files: Files, _rng: Random, place: Place) -> None:
    """Check a result and put it in place, or refuse it."""
    root = laid_out(files, place)
    outside = seen(root / OUTSIDE)
    partition = open_partition(str(root / "log" / PARTITION))
    made = str(root / "log" / "staging" / "made")

    def act() -> None:
        read_result(made)
        staged = StagedPass([made], partition)
        staged.require_whole()
        for group in staged.groups():
            staged.put(group, Changes(partition.path))

    with written_only_below(root / "log" / PARTITION):
        refused(act)
        refused(lambda: plan_of_result(made))
        refused(lambda: is_whole(made, None))  # type: ignore[arg-type] # never equal
    assert seen(root / OUTSIDE) == outside


# The state of verify ----------------------------------------------------------------------------


def state_input(rng: Random) -> Files:
    """Return an edited state."""
    files = {f"/logs/t-{i}/{0:020}.log": [i, -i, {"standard": i, "deep": 3}] for i in range(3)}
    text = json.dumps({"kafkalog_verify_state": 1, "begun": {"/logs/t-0": 5}, "files": files})
    return {"state": edited(text, rng).encode("utf-8", "replace")}


def check_state(files: Files, _rng: Random, place: Place) -> None:
    """Read a state and write it again, or refuse it."""

    def act() -> None:
        text = files["state"].decode("utf-8", "surrogateescape")
        again = History.from_json(text, "state").to_json()
        assert History.from_json(again, "state").to_json() == again

    with written_only_below(place.path / "nowhere"):
        refused(act)


TARGETS: tuple[Target, ...] = (
    Target("journals", 4_000, journal_input, check_journal),
    Target("exports", 400, export_input, check_export),
    Target("results", 1_500, result_input, check_result),
    Target("states", 5_500, state_input, check_state),
)
