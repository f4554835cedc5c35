"""What a start comes to, in one line for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.recovery.model import (
    CreateSegment,
    DeleteSegment,
    RemoveFile,
    RenameFile,
    Verdict,
    WriteFile,
)

if TYPE_CHECKING:
    from kafkalog.recovery.model import PredictedStart, Refusal

_NOTHING: Final = "nothing"


def start_line(predicted: PredictedStart) -> str:
    """One line for people: what the start comes to."""
    if predicted.refusal is not None:
        return refusal_line(predicted.refusal)
    change = _change_line(predicted)
    return change if predicted.stray is None else stray_line(predicted.stray, change)


def stray_line(reason: str, change: str = _NOTHING) -> str:
    """One line for people: why a directory is taken away, and what is done to it before."""
    line = f"rename the directory to …-stray: {reason}"
    return line if change == _NOTHING else f"{change}; then {line}"


def _change_line(predicted: PredictedStart) -> str:
    verdict = predicted.change
    if verdict == Verdict.TRUNCATE:
        return _truncation_line(predicted)
    if verdict == Verdict.REBUILD:
        return f"rebuild the indexes of {_counted(len(set(predicted.rebuilt)), 'segment')}"
    if verdict == Verdict.TIDY:
        return f"clean up: {_tidying_words(predicted)}"
    return _NOTHING


def refusal_line(refusal: Refusal) -> str:
    """One line for people: why a log or a log directory is refused."""
    return f"refuse: {refusal.error}: {refusal.message}; {refusal.consequence}"


def _tidying_words(predicted: PredictedStart) -> str:
    actions = predicted.tidying
    removed = sum(isinstance(action, RemoveFile) for action in actions)
    renamed = sum(isinstance(action, RenameFile) for action in actions)
    words = []
    if removed:
        words.append(f"remove {_counted(removed, 'file')}")
    if renamed:
        words.append(f"complete a swap of {_counted(renamed, 'file')}")
    words += sorted({f"write {action.name}" for action in actions if isinstance(action, WriteFile)})
    words += ["create an empty segment" for action in actions if isinstance(action, CreateSegment)]
    return ", ".join(words)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _truncation_line(predicted: PredictedStart) -> str:
    assert predicted.loaded, "a log that is cut is loaded"
    end = predicted.loaded.log_end_offset
    segments = sum(isinstance(cut, DeleteSegment) for cut in predicted.cuts)
    size = _counted(predicted.bytes_lost, "byte")
    if segments:
        size += f", with {_counted(segments, 'whole segment')}"
    return f"truncate to offset {end}, losing {_counted(predicted.records_lost, 'record')} ({size})"
