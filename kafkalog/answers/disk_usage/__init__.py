"""What uses space on disks, how fast it grows, and what can be reclaimed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.answers.disk_usage.run import Forecast as Forecast
    from kafkalog.answers.disk_usage.run import disk_usage as disk_usage

__all__ = ["Forecast", "disk_usage"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'kafkalog.answers.disk_usage' has no attribute {name!r}")
    return getattr(import_module("kafkalog.answers.disk_usage.run"), name)
