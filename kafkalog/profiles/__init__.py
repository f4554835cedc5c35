"""Profiles of partitions and topics: counts of records, bytes, codecs, keys and times."""

from __future__ import annotations

from kafkalog.profiles.model import CodecUse, HotKey, Profile, TimeBucket
from kafkalog.profiles.run import profile_logs

__all__ = ["CodecUse", "HotKey", "Profile", "TimeBucket", "profile_logs"]
