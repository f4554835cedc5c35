"""Runs over several paths together, as over the log directories of one broker."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from kafkalog.change.journal.backup import require_no_journal
from kafkalog.change.journal.requirements import log_dir_around
from kafkalog.errors import UsageError
from kafkalog.files.log_dir import look_at
from kafkalog.files.parents import Parent
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import require_local
from kafkalog.node.identity import home_of
from kafkalog.node.targets import require_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

M = TypeVar("M", bound=Any)  # a `Maintenance`, with the methods and results of its command


class Runs(Generic[M]):
    """Runs over log directories and partitions together: `plan`, then `apply`; a context manager.

    Within the block all of them are locked, as by `Maintenance`.

    Args:
        begin: makes the run over one path, from that and its `backup`.
        paths: log directories, parents of several, partitions, or what else a run takes.
        backup: as for `Maintenance`; of several runs, the directory that holds the backup of each.
        of_one: what was given that makes sense for one path only.

    Attributes:
        runs: one per log directory or partition.

    Raises, when the block is entered:
        UsageError: there is no path, or one too many; or several of one log directory that is
            changed.
        NothingFoundError: a topic or a partition that is named is at none of the paths.
        Also what `Maintenance` raises.
    """

    def __init__(
        self,
        begin: Callable[..., M],
        paths: Iterable[str | os.PathLike[str]],
        *,
        backup: str | None = None,
        of_one: str | None = None,
    ) -> None:
        self.runs: list[M] = []
        self._begin = begin
        self._paths = [os.fspath(path) for path in paths]
        self._backup = backup
        self._of_one = of_one
        self._held = ExitStack()

    def __enter__(self) -> Self:
        places = [place for path in self._paths for place in _places_of(path)]
        if not places:
            raise UsageError("No path is given.")
        is_one = len(places) == 1
        if self._of_one is not None and not is_one:
            raise UsageError(
                f"{self._of_one} is for one PATH, not for {len(places)}.",
                hint="Give one after another.",
            )
        if self._backup is not None and not is_one:
            require_no_journal(self._backup)
        self.runs = [
            self._begin(one, backup=self._backup if is_one else self._backup_of(one))
            for one in places
        ]
        with ExitStack() as held:
            self._hold(held)
            self._held = held.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._held.__exit__(*raised)

    @property
    def is_plan(self) -> bool:
        """Whether the runs only plan and cannot change anything."""
        return all(run.is_plan for run in self.runs)

    @property
    def has_changed(self) -> bool:
        return any(run.has_changed for run in self.runs)

    @property
    def where(self) -> str:
        """The paths, for a question."""
        return ", ".join(self._paths)

    @property
    def results(self) -> list[Any]:
        """The results of all runs so far."""
        return [one for run in self.runs for one in run.results]

    @property
    def wanted(self) -> list[Any]:
        """What `apply` would work on."""
        return [one for run in self.runs for one in run.wanted]

    def plan(self, *args: Any, **options: Any) -> Iterable[Any]:
        """Plan each run without writing anything; arguments are those of its `plan`."""
        for run in self.runs:
            run.plan(*args, **options)
        return self.results

    def apply(self, *args: Any, **options: Any) -> Iterable[Any]:
        """Carry out each run; arguments are those of its `apply`."""
        for run in self.runs:
            run.apply(*args, **options)
        return self.results

    def _hold(self, held: ExitStack) -> None:
        listings = [run.first_listing for run in self.runs]
        require_named(listings, *self.runs[0].named)
        around = [log_dir_around(one) for one in listings]
        homes = self._homes([one for one in around if one is not None])
        locked: set[str] = set()
        for run, log_dir in zip(self.runs, around, strict=True):
            if log_dir is not None:
                run.home = homes.get(log_dir)
                if (place := os.path.realpath(log_dir)) in locked and not self.is_plan:
                    raise UsageError(
                        "Several paths lie in one log directory, which is locked for each.",
                        hint="Name the log directory, or give one after another.",
                    )
                locked.add(place)
            held.enter_context(run)

    def _homes(self, log_dirs: list[str]) -> dict[str, str]:
        """Return which other log directory of its node has the metadata log, by log directory."""
        paths = tuple(map(file_system.absolute, log_dirs))
        homes = zip(log_dirs, (home_of(path, paths) for path in paths), paths, strict=True)
        return {one: home for one, home, path in homes if home != path}

    def _backup_of(self, path: str) -> str | None:
        if self._backup is None:
            return None
        # By the path, so that a repeated command continues with the backup of each.
        name = os.path.realpath(path).strip(os.sep).replace(os.sep, "-")
        return os.path.join(self._backup, name)


def _places_of(path: str) -> tuple[str, ...]:
    """Return a path, or the log directories in it if it is a parent of some."""
    require_local(path)
    found = look_at(path)
    return found.log_dirs if isinstance(found, Parent) else (path,)
