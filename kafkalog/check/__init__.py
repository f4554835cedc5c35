"""Invariants of Kafka's files: one small function each, a registry, and the walk over all."""

from __future__ import annotations
