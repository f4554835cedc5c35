"""Errors, defects and notes on stderr, and the resulting exit status."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, assert_never

from kafkalog.errors import (
    INCOMPLETE,
    INTERNAL_ERROR,
    NO,
    Done,
    GoneError,
    InternalError,
    KafkaLogError,
    LimitExceededError,
    Listener,
    Note,
    NotFoundError,
    Progress,
    UnreadableError,
    contained,
    on_failure,
    on_left_out,
    raised,
)
from kafkalog.io.wording import counted, did_you_mean, printable, some_of
from kafkalog_cli.output.text import painted, tone_of
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kafkalog.errors import Event
    from kafkalog.files.log_dir import FileEntry, PartitionDir, Target
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.files.topics import PartitionNumbers
    from kafkalog.io.paths.requests import Requests
    from kafkalog.log.batches.condition import Condition
    from kafkalog.model import Defect, LogView, Severity
    from kafkalog.node.outcome import Difference, View
    from kafkalog.node.state.coordinators import InternalTopic
    from kafkalog.node.state.model import Groups
    from kafkalog.tables.model import Loss

END_HINT: Final = " (--isolation log includes them)"
"""How to get records above high watermarks, in a note about them."""
_NUMBERS_MAX: Final = 6  # `some_of` shows one less


def show_error(error: KafkaLogError) -> None:
    show_traceback(error)
    hint = error.hint
    path, words = error.path, session().words
    if hint is None and path is not None and path in words and type(error) is NotFoundError:
        from kafkalog_cli.usage import hint_for_missing

        hint = hint_for_missing(path, words)
    _show("error", error.reference, error.message, error.context, error.note, hint)


def show_traceback(error: Exception) -> None:
    """Show the traceback of an exception, with `--debug`."""
    if session().shows_tracebacks:
        import traceback

        sys.stdout.flush()
        show_words("".join(traceback.format_exception(error)))


def show_defect(defect: Defect) -> None:
    """Show a defect for which the data on stdout has no place."""
    where = defect.path
    if defect.position is not None:
        where += f", position {defect.position}"
    _show(defect.severity, defect.reference, defect.detail, where, None, defect.hint)


def show_note(text: str) -> None:
    """Show one line worth knowing."""
    sys.stderr.write(f"{_label('note')} {printable(text)}\n")


def show_requests(requests: Requests) -> None:
    if requests.count:
        what = counted(requests.count, "request")
        where = " by the driver alone" if requests.are_elsewhere else ""
        show_note(f"{what} to object stores, {counted(requests.size_bytes, 'byte')} read{where}")


def show_warning(text: str) -> None:
    """Show one line that someone should act on."""
    sys.stdout.flush()  # so that both streams keep their order on a terminal
    sys.stderr.write(f"{_label('warning')} {printable(text)}\n")
    sys.stderr.flush()


def _label(kind: str) -> str:
    return painted(f"{kind}:", tone_of(kind), sys.stderr)


def show_words(text: str) -> None:
    """Show lines from another library, which may quote the command line."""
    sys.stderr.write("\n".join(map(printable, text.split("\n"))))


def _show(
    kind: str, reference: str, message: str, where: str | None, note: str | None, hint: str | None
) -> None:
    first = painted(f"{kind}: {reference}", tone_of(kind), sys.stderr)
    lines = [first, f"× {printable(message)}"]
    if where is not None:
        lines.append(f"╰─> {printable(where)}")
    if note is not None:
        lines.append(f"note: {printable(note)}")
    if hint is not None:
        lines.append(f"hint: {printable(hint)}")
    sys.stdout.flush()
    encoding = sys.stderr.encoding or "utf-8"
    text = "\n".join(lines) + "\n"
    sys.stderr.write(text.encode(encoding, "replace").decode(encoding))
    sys.stderr.flush()


@contextmanager
def failures_shown() -> Iterator[None]:
    """Show tracebacks of exceptions that become findings in the block, with `--debug`."""
    on_failure.append(show_traceback)
    try:
        yield
    finally:
        on_failure.remove(show_traceback)


@contextmanager
def left_out_shown() -> Iterator[None]:
    """Show which directories are left out of what the block reads, each once."""
    shown: set[str] = set()

    def show(text: str) -> None:
        if text not in shown:
            shown.add(text)
            show_note(text)

    on_left_out.append(show)
    try:
        yield
    finally:
        on_left_out.remove(show)


CHECK_FAILED: Final = "check-failed"
_STATUSES: Final = {
    CHECK_FAILED: INTERNAL_ERROR,
    **{one.reference: one.exit_code for one in (LimitExceededError, UnreadableError)},
}
"""The statuses of defects that are about the run, whatever their severity."""


_WITHOUT_ANSWER: Final = (7, 6, 5, 4, 3, 2)
"""The statuses of runs that did nothing, the gravest first."""


def status_of(event: Event, failing: Sequence[Severity] | None = None) -> int:
    """Return the exit status of a run that hears of an event alone.

    Args:
        failing: the severities of defects that are what the run looks for: they make the status 1.
            Without it a defect is something that the answer leaves out, unless it is a note.
    """
    if isinstance(event, NotFoundError) and event.path and session().is_below_a_path(event.path):
        return UnreadableError.exit_code  # nobody has named it
    if isinstance(event, KafkaLogError):
        return event.exit_code
    if isinstance(event, Note | Progress | Done):
        return 0
    from kafkalog.files.offsets import LeftOut, PartitionOffsets
    from kafkalog.log.defects import UNREADABLE
    from kafkalog.model import Defect
    from kafkalog.node.outcome import Difference
    from kafkalog.node.state.model import Groups
    from kafkalog.tables.model import Loss

    match event:
        case Defect(severity=severity, reference=reference):
            if reference in _STATUSES:
                return _STATUSES[reference]
            if reference in UNREADABLE:
                return INCOMPLETE
            if failing is not None:
                return NO if severity in failing else 0
            return 0 if severity == "note" else INCOMPLETE
        case Difference():
            return INCOMPLETE if event.hidden_bytes else 0
        case Groups():
            return 0 if event.is_whole else INCOMPLETE
        case Loss():
            return INCOMPLETE
        case PartitionOffsets():
            return INCOMPLETE if LeftOut.by([event]).is_lacking else 0
        case _:
            assert_never(event)


def status_of_all(statuses: Collection[int], *, has_answer: bool) -> int:
    """Return the exit status of a run from those of its parts.

    Args:
        has_answer: whether something was done, so that a part without an answer is only left out.
    """
    if INTERNAL_ERROR in statuses:
        return INTERNAL_ERROR
    gravest = next((one for one in _WITHOUT_ANSWER if one in statuses), 0)
    if gravest and not has_answer:
        return gravest
    if gravest or INCOMPLETE in statuses:
        return INCOMPLETE
    return NO if NO in statuses else 0


class Outcome(Listener):
    """The exit status so far: the work continues after a bad input.

    Attributes:
        has_changed: whether something was written.
        checks_failed: number of our checks that failed.
    """

    def __init__(self) -> None:
        self.has_changed = False
        self._has_answer = False
        self._statuses: set[int] = set()
        self._opened = 0
        self._failed: set[str | None] = set()
        self._within: str | None = None
        self._named: set[str] = set()
        self._noted: set[Note] = set()
        self._differences: dict[str, Difference] = {}
        self._ends: dict[PartitionOffsets, None] = {}
        self.errors: list[KafkaLogError] = []
        self.checks_failed = 0

    @property
    def status(self) -> int:
        """The exit status so far.

        What was opened and failed is not done; of what was opened and did not fail, there is an
        answer.
        """
        has_answer = self.has_changed or self._has_answer or self._opened > len(self._failed)
        return status_of_all(self._statuses, has_answer=has_answer)

    def open_all(
        self,
        paths: Iterable[str],
        *,
        by_names: bool = False,
        topics: Collection[str] | None = None,
    ) -> list[Target]:
        """Open what is at the paths; report and leave out what cannot be opened.

        Args:
            by_names, topics: as in `open_targets`.
        """
        from kafkalog.io.paths.file_system import absolute
        from kafkalog.node.targets import open_targets, partitions_of

        paths = list(paths)
        failed = {*self._failed}
        targets = open_targets(paths, hear=self.hear, by_names=by_names, topics=topics)
        self._failed = failed  # what is not open is not counted as opened
        self._opened += max(len(targets), sum(1 for _ in partitions_of(targets)))
        self._named.update(map(absolute, [*paths, *(one.path for one in targets)]))
        return targets

    def meant(
        self,
        targets: Sequence[Target],
        topics: Collection[str] | None,
        numbers: PartitionNumbers | None = None,
        *,
        internal: bool,
        dead: bool = False,
        joins: bool = True,
    ) -> list[PartitionDir | FileEntry]:
        """Return the partitions that targets mean, of one topic per name, and files as they are.

        Logs have their part in a tier, if that is a target, too, unless `joins` is false.

        Partitions that could not be listed are reported, internal ones that are left out noted.

        Raises:
            NothingFoundError: a topic has no partition, although each path was opened.
            UsageError: it is not clear which of several topics of a name is meant.
        """
        from kafkalog.files.log_dir import FileEntry
        from kafkalog.node.choice import metadata_logs, paths_of_others
        from kafkalog.node.remote_logs import joined
        from kafkalog.node.targets import choose_logs, require_named, unlisted_of

        if not self.errors:
            require_named(targets, topics, numbers)
        logs = joined(targets, topics) if joins else targets
        for one, error in unlisted_of(logs):
            if topics is None or one.topic in topics:
                self.hear(error)
        found, left_out = choose_logs(logs, topics, numbers, internal=internal, dead=dead)
        if left_out:
            what = counted(left_out, "internal partition")
            show_note(f"{what} left out; --internal includes them")
        partitions = [one for one in found if not isinstance(one, FileEntry)]
        others = paths_of_others(partitions, lambda: metadata_logs(targets), dead=dead)
        return [one for one in found if one.path not in others]

    def hear(self, event: Event) -> None:
        """Show an event, and remember its status; `report_logs` shows what concerns several logs.

        A partition that a broker has deleted meanwhile is only noted, as it would be missing from
        the next listing; unless it was named.
        """
        match event:
            case Note():
                if event not in self._noted:
                    self._noted.add(event)
                    (show_warning if event.is_warning else show_note)(event.text)
            case GoneError() if os.path.abspath(event.path or "") not in self._named:
                show_note(f"{event.path} is not there any more: it was deleted while it was read")
            case KafkaLogError():
                show_error(event)
                session().heard.add(str(event))
                self.errors.append(event)
                self._failed.add(self._within or event.path)
                self._statuses.add(status_of(event))
            case Progress() | Done():
                pass
            case _:
                self._hear_of_data(event)

    def _hear_of_data(self, event: Defect | Difference | PartitionOffsets | Loss | Groups) -> None:
        from kafkalog.files.offsets import PartitionOffsets
        from kafkalog.model import Defect
        from kafkalog.node.outcome import Difference
        from kafkalog.node.state.model import Groups
        from kafkalog.tables.model import Loss

        match event:
            case Defect():
                self.count(event)
                self.defect(event)
            case Difference():
                self._differences[event.path] = event
            case PartitionOffsets():
                self._ends[event] = None
            case Loss():
                show_warning(f"{event.name}: {event.detail}")
                self._statuses.add(status_of(event))
            case Groups():
                _report_groups(self, event)
            case _:
                assert_never(event)

    def report_logs(self, *, fails: bool = True, hint: str = END_HINT) -> None:
        """Warn as `differs` and note as `leaves_out`, of what was heard since the last report."""
        self.differs(self._differences.values(), fails=fails)
        self.leaves_out(self._ends, hint)
        self._differences.clear()
        self._ends.clear()

    def hear_note(self, event: Event) -> None:
        """Show a note as `hear` does; raise an error, for a run that it ends."""
        raised(event)
        self.hear(event)

    def contained(self, path: str) -> AbstractContextManager[None]:
        """Report what stops the work on one thing in the block, and continue after it."""
        return self._contained(path)

    @contextmanager
    def _contained(self, path: str) -> Iterator[None]:
        self._within, outer = path, self._within
        try:
            with contained(path, self.hear):
                yield
        finally:
            self._within = outer

    def report_failed_checks(self) -> None:
        """Report that checks failed, if any did, even to somebody who ignores the findings."""
        if self.checks_failed:
            self.hear(
                InternalError(
                    f"internal error: {counted(self.checks_failed, 'check')} could not be "
                    "completed.",
                    note="The findings `check-failed` name them; the rest was judged.",
                    hint="Please report it with the traceback that `kafkalog --debug …` shows.",
                )
            )

    def shown(
        self, target: PartitionDir, view: LogView, *, fails: bool = True, lazily: bool = False
    ) -> View:
        """Return the view of a partition, and warn as `differs`.

        With `lazily` a view may have a frontier; once it was read, give it to `has_read`.
        """
        from kafkalog.node.view import show_now

        shown = show_now(target, view, lazily=lazily)
        if shown.frontier is None:
            self.differs([shown.difference], fails=fails)
        return shown

    def has_read(self, shown: View, *, fails: bool = True) -> None:
        """Warn as `differs` of a view that waited for its reader."""
        if shown.frontier is not None:
            self.differs([shown.difference_so_far], fails=fails)

    def differs(self, differences: Iterable[Difference | None], *, fails: bool = True) -> None:
        """Warn if views differ from files; with `fails`, records that a view hides are lacking.

        That a view waits for a scan which nobody needed is only noted.
        """
        from kafkalog.node.outcome import summary

        found = [one for one in differences if one is not None]
        self.lacks(fails and any(map(status_of, found)))
        if (text := summary(found)) is not None:
            (show_warning if any(one.is_known for one in found) else show_note)(text)

    def leaves_out(self, ends: Iterable[PartitionOffsets], hint: str = END_HINT) -> None:
        """Note which records are not in the output; that a log ends too early is a failure."""
        from kafkalog.files.offsets import LeftOut

        left_out = LeftOut.by(ends)
        self.lacks(left_out.is_lacking)
        for line in left_out.lines(hint):
            show_note(line)

    def count(self, defect: Defect, failing: Sequence[Severity] | None = None) -> None:
        """Record a defect; some severities are failures: by default all but notes.

        An exceeded limit and a failed check always are.
        """
        self.checks_failed += defect.reference == CHECK_FAILED
        self._statuses.add(status_of(defect, failing))

    def answers(self) -> None:
        """Record that there is an answer, of a command that does not open its paths itself."""
        self._has_answer = True

    def answers_no(self, is_no: bool = True) -> None:
        """Record that the answer is no, if it is: status 1 unless something could not be read."""
        if is_no:
            self._statuses.add(NO)

    def lacks(self, is_lacking: bool = True) -> None:
        """Record that something is left out, if it is: status 8."""
        if is_lacking:
            self._statuses.add(INCOMPLETE)

    def leaves_undecoded(self, where: Condition | None, *, is_empty: bool = False) -> None:
        """Note how many values a condition could not look into: one may be what was not found."""
        if where is not None and where.note is not None:
            show_note(where.note)
            self.lacks(is_empty)

    def miss(self, text: str, name: str = "", known: Iterable[str] = ()) -> None:
        """Warn that what was asked for is not there, with names like it: the answer is no."""
        show_warning(f"{text} {did_you_mean(name, known)}".rstrip())
        self.answers_no()

    def of_work(
        self,
        *,
        has_changed: bool,
        has_plan: bool = False,
        check: bool = False,
        is_concerned: bool = False,
    ) -> int:
        """Return the exit status of a command that writes.

        Args:
            has_changed: whether it has written something.
            has_plan: whether only a plan was wanted, and there is one.
            check: whether a plan with something to do makes the status 1: `--check`.
            is_concerned: whether there is something to do.
        """
        self.has_changed |= has_changed
        self._has_answer |= has_plan
        self.answers_no(check and is_concerned)
        return self.status

    def defect(self, defect: Defect) -> None:
        show_defect(defect)


def report_gaps(
    outcome: Outcome,
    topic: InternalTopic,
    incomplete: Sequence[int],
    undecoded: int,
    needed: Sequence[int] | None = None,
) -> None:
    """Warn of what an answer from an internal topic lacks; that is a failure.

    Args:
        needed: its missing partitions that matter, -1 if no number is known; all if None.
    """
    missing = topic.missing_count if needed is None else len(needed)
    if missing:
        named = islice(topic.missing() if needed is None else needed, _NUMBERS_MAX)
        numbers = some_of([str(number) if number >= 0 else "of unknown number" for number in named])
        show_warning(
            f"{counted(missing, 'partition')} of {topic.name} not in PATH: {numbers}. "
            "What belongs to them is not shown."
        )
    if incomplete:
        numbers = some_of([str(number) for number in incomplete])
        show_warning(f"Not all of {topic.name} could be read: partition {numbers}.")
    if undecoded:
        show_warning(f"{counted(undecoded, 'record')} of {topic.name} could not be decoded.")
    outcome.lacks(bool(missing or incomplete or undecoded))


def _report_groups(outcome: Outcome, found: Groups) -> None:
    report_gaps(outcome, found.topic, found.incomplete, found.undecoded)
    shares = found.shares
    report_gaps(outcome, shares.topic, shares.incomplete, shares.undecoded, sorted(shares.missing))
    outcome.leaves_out(found.cut, hint="")
