"""Functions that engines run in the tests, found by name where a task runs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalog.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Mapping


def doubled(task: Mapping[str, Any]) -> dict[str, Any]:
    return {"doubled": 2 * task["number"]}


def corrupt(task: Mapping[str, Any]) -> dict[str, Any]:
    """Raise for numbers from three on, as for damaged data."""
    if task["number"] >= 3:
        raise CorruptDataError(
            "It is damaged.", reference="batch-crc-mismatch", path="/x", position=task["number"]
        )
    return {}


def mistaken(task: Mapping[str, Any]) -> dict[str, Any]:
    """Raise an error that is not one of ours."""
    return {"never": task["missing"]}


def large(task: Mapping[str, Any]) -> dict[str, Any]:
    return {"text": os.urandom(task["size"] // 2).hex()}


def crash(_: Mapping[str, Any]) -> dict[str, Any]:
    """End the worker, as the kernel does when memory runs out."""
    os._exit(9)


def slow(task: Mapping[str, Any]) -> dict[str, Any]:
    """Create a file in a directory to show that it runs, then take time."""
    Path(task["directory"], f"{task['number']}-{os.getpid()}").touch()
    time.sleep(task["seconds"])
    return {"number": task["number"]}
