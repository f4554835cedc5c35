"""Commands that change a log directory: each is prepared on a copy and run with `observe`."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kafkalog.change.compaction import (
    CompactionRequest,
    compact_partition,
    compact_partitions,
    find_candidate,
)
from kafkalog.change.journal import Run, undo
from kafkalog.change.repair import perform_recovery, plan_recovery, rebuild_indexes
from kafkalog.change.resurrection import ResurrectOptions
from kafkalog.change.resurrection.into import run_into
from kafkalog.change.resurrection.sources import open_sources
from kafkalog.change.retention.apply import perform_trim, plan_trim
from kafkalog.errors import KafkaLogError
from kafkalog.files.log_dir import open_partition
from kafkalog.io.engine import LocalEngine
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.model import Batch
from kafkalog.node.configs import ConfigSources
from kafkalog.node.recovery import StartMode
from tests.crash.served import is_partly_cleaned
from tests.kafkalog.change.resurrection.test_into import home, put
from tests.kafkalog.change.resurrection.test_resurrect import log_of, make
from tests.kafkalog.test_recovery import CONFIG
from tests.sampling import shares

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kafkalog.io.storage import Step
    from tests.crash.served import Served

PARTITION = "orders-0"
SUFFIXES = ("log", "index", "timeindex", "txnindex")
CLEANER_OFFSETS = "cleaner-offset-checkpoint"


@dataclass(frozen=True)
class Command:
    """A command on the log directory at `root / "log"`; the rest of `root` is free.

    Attributes:
        name: what tests call it.
        run: the command; `observe` is called after each step.
        prepare: makes the log directory ready from a copy of an intact one.
        source: the log directory in the corpus.
        can_be_repeated: whether a second run succeeds after the first one was stopped.
        is_stepwise: whether a log that is only partly cleaned counts as whole.
        is_clean: whether the log directory has the mark of a clean shutdown.
    """

    name: str
    run: Callable[[Path, Callable[[Step], None] | None], None]
    prepare: Callable[[Path], None] = lambda root: None  # noqa: ARG005
    source: str = "recovery/intact"
    is_clean: bool = True
    can_be_repeated: bool = True
    is_stepwise: bool = False
    builds_aside: ClassVar[bool] = False
    """Whether states that differ only in what a broker removes as unfinished count as one."""

    @property
    def kind(self) -> str:
        """What it does, without the log that it does it to: `undo-of-compact`."""
        found = re.match("(undo-of-)?[a-z]+", self.name)
        assert found is not None
        return found[0]

    def accepts(self, got: dict[str, Served], logs: Sequence[dict[str, Served]]) -> bool:
        """Check whether a start found one of `logs`, of which the last is the new one.

        The first one is the log before a stopped run: continuing that run passes through it.
        """
        *_, old, new = logs
        return got in logs or (
            self.is_stepwise
            and got.keys() == old.keys()
            and all(is_partly_cleaned(found, old[name], new[name]) for name, found in got.items())
        )

    def fresh(self, corpus_dir: Path, root: Path) -> Path:
        """Copy the log directory, before it is prepared."""
        log_dir = root / "log"
        log_dir.mkdir(parents=True)
        source = corpus_dir / self.source
        shutil.copytree(source / PARTITION, log_dir / PARTITION)
        for checkpoint in source.glob("*-checkpoint"):
            shutil.copy2(checkpoint, log_dir)
        (log_dir / CLEANER_OFFSETS).write_text(f"0\n2\nother 3 7\n{PARTITION[:-2]} 0 2\n")
        (log_dir / ".lock").touch()
        if self.is_clean:
            (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
        return log_dir

    def ready(self, corpus_dir: Path, root: Path) -> Path:
        """Make a log directory on which the command can run."""
        log_dir = self.fresh(corpus_dir, root)
        self.prepare(root)
        return log_dir


def name_of(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020}.{suffix}"


def swap(root: Path, observe: Callable[[Step], None] | None = None, backup: str | None = None,
         fail_before: Callable[[str], None] = lambda what: None) -> None:  # noqa: ARG005  # fmt: skip
    """Replace two segments by one that lacks a batch, in the order in which Kafka swaps.

    This does to the disk what a compaction does, and no more: the new segment has no index entries.
    """
    log_dir = root / "log"
    with Run(str(log_dir), observe, command="swap", backup=backup) as run:
        partition = open_partition(str(log_dir / PARTITION))
        if run.is_done(partition):
            return
        old = [segment.base_offset for segment in partition.segments[:2]]
        touched = [name_of(base, suffix) for base in old for suffix in SUFFIXES]
        touched.append(name_of(old[1], "snapshot"))
        touched = [name for name in touched if (log_dir / PARTITION / name).exists()]
        with run.partition(partition, touched) as changing:
            changes = changing.changes
            for suffix in SUFFIXES:
                like = str(log_dir / PARTITION / name_of(old[0], "log"))
                name = name_of(old[0], suffix) + ".cleaned"
                with changes.create(name, like=like, modified_timestamp=1_700_000_000_000) as file:
                    file.write(content(log_dir / PARTITION, old, suffix))
            changes.sync_directory()
            fail_before("swap")
            for suffix in SUFFIXES:
                name = name_of(old[0], suffix)
                changes.rename(name + ".cleaned", name + ".swap")
            changes.sync_directory()
            fail_before("delete")
            for name in touched[:-1]:
                changes.rename(name, name + ".deleted")
            changes.sync_directory()
            fail_before("final")
            for suffix in SUFFIXES:
                name = name_of(old[0], suffix)
                changes.rename(name + ".swap", name)
                changes.sync_directory()  # a start drops indexes that come before their log
            changes.rename(touched[-1], touched[-1] + ".deleted")
            changing.set_offset(CLEANER_OFFSETS, old[1] + 5)
            fail_before("remove")
            for name in touched:
                changes.remove(name + ".deleted")
            changes.sync_directory()


def content(partition: Path, bases: list[int], suffix: str) -> bytes:
    if suffix in ("index", "timeindex"):
        return b""
    if suffix == "txnindex":
        paths = [partition / name_of(base, suffix) for base in bases]
        return b"".join(path.read_bytes() for path in paths if path.exists())
    kept = b""
    for base in bases:
        with Source(str(partition / name_of(base, "log"))) as source:
            for number, batch in enumerate(scan_batches(source)):
                assert isinstance(batch, Batch)
                if (base, number) != (bases[0], 0):
                    kept += source.read(batch.position, batch.size_bytes)
    return kept


def swapped(root: Path) -> None:
    swap(root, backup=str(root / "backup"))


class StoppedError(Exception):
    """Raised in the middle of a command."""


def stopped_before(where: str) -> Callable[[Path], None]:
    """Return a `prepare` that stops a swap with a backup before a step."""

    def prepare(root: Path) -> None:
        def fail(what: str) -> None:
            if what == where:
                raise StoppedError

        try:
            swap(root, backup=str(root / "backup"), fail_before=fail)
        except StoppedError:
            return
        raise AssertionError(where)

    return prepare


def trim(root: Path, observe: Callable[[Step], None] | None = None) -> None:
    """Remove two segments from the front, and the part of a third that the log start hides."""
    path = str(root / "log")
    with Run(path, observe, command="retention", backup=str(root / "backup")) as run:
        partition = open_partition(str(root / "log" / PARTITION))
        if run.is_done(partition):
            return
        configs = ConfigSources({}).in_log_dir(path).of_topic("orders")
        plan = plan_trim(
            partition, configs, 1_700_000_000_000, high_watermark="end", log_start_offset=45
        )
        assert len(plan.segments) == 2
        perform_trim(run, plan)


@dataclass(frozen=True)
class Compaction:
    """`compact` with a clock and configs of one of the corpus' cleanings."""

    source: str
    now_ms: int
    configs: tuple[tuple[str, str], ...]
    has_backup: bool = True
    memory: int | None = None
    """Of an engine's tasks; None: it is done in one process."""

    def __call__(self, root: Path, observe: Callable[[Step], None] | None = None) -> None:
        """Compact everything that can be cleaned, again from the start of the log."""
        log_dir = str(root / "log")
        backup = str(root / "backup") if self.has_backup else None
        request = CompactionRequest(self.now_ms, high_watermark="end", first_dirty_offset=0)
        given = {"cleanup.policy": "compact", **dict(self.configs)}
        with Run(log_dir, observe, command="compact", backup=backup) as run:
            partition = open_partition(str(root / "log" / PARTITION))
            if run.is_done(partition):
                return
            configs = ConfigSources(given).in_log_dir(log_dir).of_topic("orders")
            candidate = find_candidate(partition, configs, request)
            if self.memory is None:
                done = compact_partition(candidate, request, run)
            else:
                engine = LocalEngine(2)
                [(_, found)] = compact_partitions(
                    [candidate], request, engine, run, task_memory=self.memory
                )
                if isinstance(found, KafkaLogError):
                    raise found
                done = found
            assert done.groups

    def prepare(self, root: Path) -> None:
        """Do nothing: the log directory is ready."""
        self(root)


COMPACTIONS = {
    "gap-behind-the-new-log": Compaction(
        "compaction/tail_gap_some/before", 1_700_003_600_000, ()
    ),
    "tombstones-go": Compaction(
        "compaction/tombstones_horizon/after-2", 1_700_010_100_000,
        (("delete.retention.ms", "100000"),),
    ),
    "transactions-in-three-groups": Compaction(
        "compaction/txn_span_separate_groups/before", 1_700_003_600_000,
        (("segment.bytes", "300"), ("delete.retention.ms", "50000")),
    ),
    "aborted-transactions-go": Compaction(
        "compaction/txn_commit_abort/before", 1_700_001_000_000,
        (("delete.retention.ms", "50000"),), has_backup=False,
    ),
    "by-tasks": Compaction(
        "compaction/txn_span_separate_groups/before", 1_700_003_600_000,
        (("segment.bytes", "300"), ("delete.retention.ms", "50000")), has_backup=False,
        memory=1 << 30,
    ),
    "by-tasks-in-buckets": Compaction(
        "compaction/tail_gap_some/before", 1_700_003_600_000, (), has_backup=False, memory=1,
    ),
}  # fmt: skip


def run_undo(root: Path, observe: Callable[[Step], None] | None = None) -> None:
    undo(str(root / "backup"), in_place=True, observe=observe)


def run_swap_again(root: Path, observe: Callable[[Step], None] | None = None) -> None:
    swap(root, observe, backup=str(root / "backup"))


class Into(Command):
    """`resurrect --into`: t-0 goes where nothing exists, t-1 into an empty partition."""

    builds_aside = True

    def fresh(self, corpus_dir: Path, root: Path) -> Path:  # noqa: ARG002
        """Make the log directory, with the source and the metadata log next to it."""
        log_dir = home(root, leaderEpoch=99).rename(root / "log")
        put(log_dir, "t-1", [b""])
        (root / "meta").mkdir()
        (log_dir / "__cluster_metadata-0").rename(root / "meta" / "__cluster_metadata-0")
        shutil.copy(log_dir / "meta.properties", root / "meta")
        for number in range(2):
            make(root / "a", f"t-{number}", log_of(5 + number, epoch=number))
        for name in ("log-start-offset-checkpoint", CLEANER_OFFSETS):
            (root / "a" / name).write_text("0\n2\nt 0 2\nt 1 2\n")
        return log_dir

    def accepts(self, got: dict[str, Served], logs: Sequence[dict[str, Served]]) -> bool:
        """Check whether each partition is the old or the new one; a start makes an empty one."""
        *_, old, new = logs
        lost = [name for name in old.keys() - got.keys() if old[name].records]
        return not lost and all(one in (old.get(name), new[name]) for name, one in got.items())


def run_resurrection_into(root: Path, observe: Callable[[Step], None] | None = None) -> None:
    options = ResurrectOptions(as_of_metadata=str(root / "meta"))
    run_into(open_sources([root / "a"]), str(root / "log"), options, dry_run=False, tell=None,
             progress=None, observe=observe)  # fmt: skip


@dataclass(frozen=True)
class Recovery:
    """`recover` in a mode, with permission to cut off anything."""

    mode: StartMode
    has_backup: bool = False

    def __call__(self, root: Path, observe: Callable[[Step], None] | None = None) -> None:
        backup = str(root / "backup") if self.has_backup else None
        with Run(str(root / "log"), observe, command="recover", backup=backup) as run:
            partition = open_partition(str(root / "log" / PARTITION))
            if not run.is_done(partition):
                perform_recovery(plan_recovery(partition, self.mode, CONFIG), run, forced=True)

    def prepare(self, root: Path) -> None:
        """Do nothing: the log directory is ready."""
        self(root)


def rebuild(root: Path, observe: Callable[[Step], None] | None = None) -> None:
    with Run(str(root / "log"), observe) as run:
        rebuild_indexes(open_partition(str(root / "log" / PARTITION)), run, CONFIG)


def rebuild_with_backup(root: Path, observe: Callable[[Step], None] | None = None) -> None:
    backup = str(root / "backup")
    with Run(str(root / "log"), observe, command="rebuild-index", backup=backup) as run:
        partition = open_partition(str(root / "log" / PARTITION))
        if not run.is_done(partition):
            rebuild_indexes(partition, run, CONFIG)


def without_indexes(root: Path) -> None:
    for path in (root / "log" / PARTITION).glob("*index"):
        path.unlink()


def rebuilt(root: Path) -> None:
    without_indexes(root)
    rebuild_with_backup(root)


RECOVERIES = {
    StartMode.UNCLEAN: (
        "crc_active_mid",
        "torn_keep_16",
        "duplicated_content",
        "logstart_above_leo",
        "offset_overflow_split",
        "swap_c_swap_sources_intact",
        "swap_h_timeindex_swap_missing",
    ),
    StartMode.FULL: ("offset_overflow_split",),
    StartMode.CLEAN: ("index_missing_all", "swap_c_swap_sources_intact"),
}
BACKED_UP = (("offset_overflow_split", True), ("crc_active_mid", False))
"""Recoveries that are taken back, and whether there is the mark of a clean shutdown before."""
COMMANDS = [
    Command("retention", trim),
    Command("undo-of-retention", run_undo, trim),
    *(
        Command(
            f"compact-{name}",
            compaction,
            source=compaction.source,
            is_stepwise=True,
            can_be_repeated=compaction.has_backup,
        )
        for name, compaction in COMPACTIONS.items()
    ),
    *(
        Command(f"undo-of-compact-{name}", run_undo, compaction.prepare, compaction.source)
        for name, compaction in COMPACTIONS.items()
        if compaction.has_backup
    ),
    *(
        Command(f"recover-{mode}-{name}", Recovery(mode), source=f"recovery/{name}", is_clean=clean)
        for mode, names in RECOVERIES.items()
        for name in names
        for clean in {mode == StartMode.CLEAN, mode == StartMode.FULL}
    ),
    *(
        Command(
            f"recover-with-backup-{name}",
            Recovery(StartMode.FULL, has_backup=True),
            source=f"recovery/{name}",
            is_clean=clean,
        )
        for name, clean in BACKED_UP
    ),
    *(
        Command(
            f"undo-of-recover-{name}",
            run_undo,
            Recovery(StartMode.FULL, has_backup=True).prepare,
            f"recovery/{name}",
            is_clean=clean,
        )
        for name, clean in BACKED_UP
    ),
    Into("resurrect-into", run_resurrection_into),
    Command("rebuild-index", rebuild, without_indexes),
    Command("rebuild-index-with-backup", rebuild_with_backup, without_indexes),
    Command("undo-of-rebuild-index", run_undo, rebuilt),
    Command("swap", swap, can_be_repeated=False),
    Command("swap-unclean", swap, is_clean=False, can_be_repeated=False),
    Command("swap-with-backup", run_swap_again),
    Command("undo", run_undo, swapped),
    Command("undo-unclean", run_undo, swapped, is_clean=False),
    *(
        Command(f"undo-of-swap-stopped-before-{where}", run_undo, stopped_before(where))
        for where in ("swap", "delete", "final", "remove")
    ),
    Command("resume-of-swap-stopped-before-final", run_swap_again, stopped_before("final")),
]

CRASHING, FAILING, KILLED = shares(COMMANDS, 3, lambda one: one.kind)
"""Those whose crashes a run enumerates, those whose calls it lets fail, and those that it kills."""
