"""Files at the top of a log directory that a run replaces as a whole, and the way back.

Without `meta.properties` no broker starts on a log directory: it goes first and comes last, in a
run as in its undo, so that a crash in between leaves nothing that a broker would take for whole.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.topic_names import CLUSTER_METADATA
from kafkalog.change.journal.journal import (
    MARK_REMOVED,
    MARK_RESTORED,
    TOP_CHANGING,
    TOP_UNDONE,
    encoded,
)
from kafkalog.change.journal.log_dir_files import DIRECTORY, bring_mark_back, has_mark
from kafkalog.errors import ChangedSinceError, KafkaLogError
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import read_file
from kafkalog.io.storage import TEMPORARY_SUFFIX, Changes, require_no_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.change.journal.backup import Backup
    from kafkalog.change.journal.journal import Journal
    from kafkalog.io.storage import AppendedFile, Step

    Observe = Callable[[Step], None] | None

_SIZE_MAX: Final = 1 << 30
_METADATA: Final = f"{CLUSTER_METADATA}-0"


def change(
    log_dir: str, name: str, data: bytes | None, backup: Backup, observe: Observe = None
) -> None:
    """Replace a file at the top, or remove it, once the backup has it and the journal says so.

    Args:
        log_dir: the log directory, which is locked.
        name: one of the names that the journal takes.
        data: what it is to hold; None removes it.
        observe: called after each step on the disk.
    """
    changes, known = Changes(log_dir, observe), backup.journal.tops.get(name)
    path = changes.path(name)
    # A second change of the same file: the first one's backup is the state before the run.
    before = digest(path) if known is None else known.before
    if known is None and before is not None:
        kept = Changes(os.path.join(backup.path, DIRECTORY), observe)
        kept.remove(name, missing_ok=True)
        kept.link(path, name)
        kept.sync_directory()
    after = None if data is None else hashlib.sha256(data).hexdigest()
    line: dict[str, object] = {"type": "top", "name": name, "state": TOP_CHANGING, "before": before}
    line["after"] = after
    # Kept, then noted with both digests, then changed: `undo` recognizes the file at any crash
    # point.
    backup.note(line)
    if data is not None:
        changes.replace(name, data)
    elif file_system.is_there(path):
        changes.remove(name)
        changes.sync_directory()


def digest(path: str) -> str | None:
    """Return the SHA-256 of a file, None if it is missing; raise `RefusedError` for a link."""
    require_no_link(path)
    if not file_system.is_there(path):
        return None
    return hashlib.sha256(read_file(path, _SIZE_MAX)).hexdigest()


def require_tops(journal: Journal) -> None:
    """Check that the files are as the run left them, or as they were, and the backup has them.

    Raises:
        ChangedSinceError: somebody else has changed one, or a broker has made a metadata log.
    """
    log_dir = journal.log_dir or ""
    metadata = os.path.join(log_dir, _METADATA)
    top = journal.tops.get(file_names.META_PROPERTIES)
    own = digest(os.path.join(log_dir, file_names.META_PROPERTIES))
    can_start = top is not None and own is not None and own in top.after
    # A start has made the metadata log if the run did not; what is in it is not ours to remove.
    is_new = metadata not in journal.partitions and file_system.is_there(metadata)
    if can_start and is_new and file_system.names_in(metadata):
        raise ChangedSinceError(
            "A broker has started on the log directory since the run.",
            path=metadata,
            hint="What it wrote would be lost.",
        )
    for name, top in journal.tops.items():
        allowed = {top.before, *top.after}
        # An interrupted undo has removed it (`close_log_dir`).
        if name == file_names.META_PROPERTIES:
            allowed.add(None)
        path = os.path.join(log_dir, name)
        if digest(path) not in allowed:
            raise ChangedSinceError("The file has changed since the run.", path=path)
        kept = os.path.join(journal.backup, DIRECTORY, name)
        if top.before is not None and digest(kept) != top.before:
            raise ChangedSinceError("The backup has changed since the run.", path=kept)


def close_log_dir(journal: Journal, observe: Observe) -> None:
    """Remove a `meta.properties` of the run, so that no broker starts meanwhile."""
    top = journal.tops.get(file_names.META_PROPERTIES)
    if top is None or journal.log_dir is None:
        return
    changes = Changes(journal.log_dir, observe)
    # Without this file a broker refuses to start: nothing half restored can be loaded meanwhile.
    if digest(changes.path(file_names.META_PROPERTIES)) not in (None, top.before):
        changes.remove(file_names.META_PROPERTIES)
        changes.sync_directory()


def bring_tops_back(journal: Journal, file: AppendedFile, observe: Observe) -> None:
    """Restore the files; `meta.properties` comes last."""
    if journal.log_dir is None:
        return
    changes = Changes(journal.log_dir, observe)
    # It is what allows a broker to start, so everything else is there before it.
    names = sorted(journal.tops, key=lambda name: name == file_names.META_PROPERTIES)
    for name in names:
        before = journal.tops[name].before
        changes.remove(name + TEMPORARY_SUFFIX, missing_ok=True)
        if digest(changes.path(name)) == before:
            continue
        if before is None:
            changes.remove(name)
        else:
            temporary = name + TEMPORARY_SUFFIX
            changes.link(os.path.join(journal.backup, DIRECTORY, name), temporary)
            changes.rename(temporary, name)
        changes.sync_directory()
    for name in names:
        # After all files are durable; an undo that is repeated compares digests and changes
        # nothing.
        file.append(encoded({"type": "top", "name": name, "state": TOP_UNDONE}))


def bring_the_mark_back(journal: Journal, file: AppendedFile, observe: Observe) -> None:
    """Restore the clean shutdown mark, after a line that says so.

    The line comes first: a mark restored twice, after a broker was started and killed, would keep
    it from scanning; one that is never restored only makes it scan too much.
    """
    if journal.log_dir is None or not journal.lacks_mark:
        return
    file.append(encoded({"type": "mark", "state": MARK_RESTORED}))
    try:
        bring_mark_back(journal.log_dir, journal.backup, observe)
    except KafkaLogError:
        if not has_mark(journal.log_dir):  # otherwise there would be no second attempt
            file.append(encoded({"type": "mark", "state": MARK_REMOVED}))
        raise
