"""Runs many tasks at once: in a pool of threads, or on Spark. Both run the same functions."""

from __future__ import annotations

from kafkalog.engine.local import LocalEngine
from kafkalog.engine.model import Engine

__all__ = ["Engine", "LocalEngine"]
