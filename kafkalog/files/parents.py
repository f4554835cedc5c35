"""Parents of several log directories: a folder per disk (JBOD) or per broker, as copies keep them.

Only names are looked at. A log directory is known by the files at its top, or by a partition in it.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import TOP_FILES, FileKind, parse_directory_name, parse_file_name
from formats.late_classes import dataclass
from kafkalog.errors import DataError, NotAKafkaFileError, Note
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.io.wording import counted, some_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEPTH_MAX: Final = 4
"""How many levels below a parent log directories are found: `broker-1/var/lib/kafka`, say."""

_UNRELATED: Final = "lost+found"  # of the file system; only root may list it
_NAMED_MAX: Final = 5  # names in a hint
_LISTINGS_MAX: Final = 10_000  # directories that are looked into
_AT_TOP: Final = frozenset({*TOP_FILES, file_names.REMOTE_INDEX_CACHE})


@dataclass(frozen=True, slots=True)
class Parent:
    """A directory that holds log directories, or a tier, which holds tiered logs.

    Attributes:
        log_dirs: the paths of the log directories or of the tiered logs, in order.
        holds: what one of them is called.
    """

    path: str
    log_dirs: tuple[str, ...]
    holds: str = "log directory"

    @property
    def names(self) -> list[str]:
        """The log directories' paths as seen from the directory."""
        return [path.removeprefix(os.path.join(self.path, "")) for path in self.log_dirs]

    @property
    def note(self) -> Note:
        """Which log directories or tiered logs it stands for."""
        count = counted(len(self.log_dirs), self.holds)
        return Note(f"{self.path} holds {count}: {some_of(self.names)}")

    def too_many(self) -> NotAKafkaFileError:
        """Return the error of a run that needs one path."""
        names = ", ".join(self.names[:_NAMED_MAX])
        names += ", …" if len(self.log_dirs) > _NAMED_MAX else ""
        return NotAKafkaFileError(
            f"The directory holds {counted(len(self.log_dirs), self.holds)}; one path is needed "
            "here.",
            path=self.path,
            hint=f"Name one of them: {names}.",
        )


def log_dirs_below(path: str, directories: Sequence[str]) -> list[str]:
    """Return the log directories in a directory that is none itself, by path.

    Directories that cannot be listed are included if there is any log directory beside them, since
    they may be log directories; opening them raises the error. Of several names for one directory
    only the first is included.

    Args:
        path: the parent.
        directories: the names of the directories in it.

    Raises:
        NotAKafkaFileError: there are too many directories to look into.

    Cost:
        A listing per directory, of 10,000 at most; partitions are not looked into.
    """
    if any(parse_directory_name(name) for name in directories):
        file_system.prefetch_listing(path)
    search = _Search(path)
    found = list(search.below(path, directories, DEPTH_MAX))
    if not found:
        return []
    by_place: dict[str, str] = {}
    for inner in sorted([*found, *search.unlisted], key=lambda one: (os.path.islink(one), one)):
        by_place.setdefault(inner if is_object(inner) else os.path.realpath(inner), inner)
    return sorted(by_place.values())


@dataclass
class _Search:
    """A search below a directory, and the directories that it could not list."""

    path: str
    listings: int = 0
    unlisted: list[str] = field(default_factory=list)

    def below(self, path: str, names: Sequence[str], depth: int) -> Iterator[str]:
        for inner in [os.path.join(path, name) for name in names if name != _UNRELATED]:
            self.listings += 1
            if self.listings > _LISTINGS_MAX:
                raise NotAKafkaFileError(
                    f"Log directories were looked for in {_LISTINGS_MAX} places; there are more.",
                    path=self.path,
                    hint="Name the log directories (the entries of log.dirs).",
                )
            try:
                entries = file_system.names(inner)
            # Gone since the listing, or a file: neither holds log directories.
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, DataError):
                self.unlisted.append(inner)
                continue
            if _is_log_dir(inner, entries):
                yield inner
            elif depth > 1 and not _has_known_file(entries):
                yield from self.below(inner, entries, depth - 1)


def _is_log_dir(path: str, names: Sequence[str]) -> bool:
    """Return whether these names are those of a log directory's files and partitions."""
    if not _AT_TOP.isdisjoint(names):
        return True
    # Kafka's files at the top of it: a partition, which holds no log directory.
    if _has_known_file(names):
        return False
    return any(
        is_partition(os.path.join(path, name)) for name in names if parse_directory_name(name)
    )


def is_partition(path: str) -> bool:
    """Return whether a directory holds files of a partition rather than those of a log directory.

    A directory that cannot be listed is no partition.
    """
    try:
        names = file_system.names(path)
    except (OSError, DataError):
        return False
    return _AT_TOP.isdisjoint(names) and _has_known_file(names)


def may_be_partition(path: str) -> bool:
    """Return whether a directory named like a partition holds Kafka's files, or nothing yet.

    So may one that cannot be listed.
    """
    try:
        names = file_system.names(path)
    except (OSError, DataError):
        return True
    return not names or _has_known_file(names)


def _has_known_file(names: Sequence[str]) -> bool:
    return any(parse_file_name(name).kind != FileKind.UNKNOWN for name in names)
