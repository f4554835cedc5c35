"""Plans of a query that its program makes once, for Spark's planning process to find in files.

Spark asks a data source for its tasks in a process of its own, which knows nothing of what the
program has seen of the logs. What is not found there is planned there.
"""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from kafkalog.spark.reading import batch_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.spark.options import SourceOptions
    from kafkalog.spark.reading import Find
    from kafkalog.tables import Split
    from kafkalog.tables.model import Request

PLANS: Final = "plans"
"""The option with the directory of the files, which this user alone can write."""
_REQUEST: Final = "request-"
_PLAN: Final = "plan-"


def note_request(directory: str, request: Request) -> None:
    """Tell the program what a scan asks for, with the filters that Spark pushes down."""
    _write(directory, _REQUEST, request)


def noted_requests(directory: str) -> list[Request]:
    """Return what scans ask for; nothing of those without filters."""
    return list(_each(directory, _REQUEST))


def hand_over(directory: str, asked: SourceOptions, find: Find) -> None:
    """Plan what a scan will ask for. Arguments and errors are those of `batch_tasks`."""
    tasks = batch_tasks(asked, find)
    _write(directory, _PLAN, (asked.request, tasks))


def tasks_in(directory: str | None, asked: SourceOptions) -> list[tuple[Split, ...]]:
    """Return the tasks that were handed over, or plan them. Raises as `batch_tasks`."""
    for request, tasks in () if directory is None else _each(directory, _PLAN):
        # A request is all that decides which rows there are: the same one, the same plan.
        if request == asked.request:  # the other options are those of the run
            found: list[tuple[Split, ...]] = tasks
            return found
    return batch_tasks(asked)


def _write(directory: str, kind: str, what: object) -> None:
    with open(os.path.join(directory, f"{kind}{uuid4()}"), "xb") as file:
        pickle.dump(what, file)


def _each(directory: str, kind: str) -> Iterator[Any]:
    for name in sorted(os.listdir(directory)):
        if name.startswith(kind):
            with open(os.path.join(directory, name), "rb") as file:
                yield pickle.load(file)  # noqa: S301 # written by this run, readable by its user
