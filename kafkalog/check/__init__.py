"""Invariants of Kafka's files: one small function each, a registry, and the walk that runs them."""

from __future__ import annotations
