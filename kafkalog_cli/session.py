"""What holds for one run, whatever its command: the options of all commands set it."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.node.state.model import Moment


class Session:
    """What holds for one run, whatever its command.

    Attributes:
        words: the command line.
        exact: whether tables have plain numbers for sizes and times.
        zone: time zone of tables, and of times given without one.
        now: the time that relative times refer to, as given; None for the clock.
        is_quiet: whether only results and errors are shown.
        is_verbose: whether assumptions and sources are shown, too.
        shows_tracebacks: whether errors are shown with a traceback.
        has_no_pager: whether long output goes to the terminal itself.
        heard: the errors that were shown of what is left out.
        paged_width: the columns of the terminal behind a pager; None without one.
    """

    def __init__(self, words: Sequence[str] = (), *, shows_tracebacks: bool = False) -> None:
        self.words = words
        self.exact = False
        self.zone: tzinfo = UTC
        self.now: str | None = None
        self.is_quiet = False
        self.is_verbose = False
        self.shows_tracebacks = shows_tracebacks
        self.has_no_pager = False
        self.heard = set[str]()
        self.colours = "auto"

    def is_below_a_path(self, path: str) -> bool:
        """Return whether a path is below one that the command line names, and not named itself."""
        from kafkalog.io.paths.file_system import absolute

        place, named = absolute(path), {absolute(word) for word in self.words if word}
        return place not in named and any(place.startswith(f"{one.rstrip('/')}/") for one in named)


_session = Session()


def session() -> Session:
    """Return what holds for this run."""
    return _session


def begin_session(argv: list[str]) -> None:
    """Forget the options of an earlier run; `--debug` holds while options are parsed, too."""
    global _session  # noqa: PLW0603 # one run at a time
    _session = Session(argv, shows_tracebacks="--debug" in argv)


def time_of(text: str) -> int:
    """Parse a time of this run to milliseconds. Raises `UsageError`."""
    from kafkalog.io.times import parse_time

    return parse_time(text, _session.now, _session.zone)


def times_of(
    from_offset: int | None, to_offset: int | None, from_time: str | None, to_time: str | None
) -> tuple[int | None, int | None]:
    """Return the times of a selection. Raises `UsageError`, also if a bound is after the other."""
    from kafkalog.errors import UsageError

    first, last = (None if one is None else time_of(one) for one in (from_time, to_time))
    for name, start, end in (("offset", from_offset, to_offset), ("time", first, last)):
        if start is not None and end is not None and start > end:
            raise UsageError(f"--from-{name} is after --to-{name}.", hint="Exchange them.")
    return first, last


def moment_of(text: str | None) -> Moment | None:
    """Parse `TIME` or `P@OFFSET`; None stays None. Raises `UsageError`."""
    from kafkalog.node.state.model import parse_moment

    return None if text is None else parse_moment(text, _session.now, _session.zone)


def now_ms() -> int:
    """Return what the clock says, or `--now` in its place. Raises `UsageError`."""
    return time_of("-0s" if _session.now is None else _session.now)
