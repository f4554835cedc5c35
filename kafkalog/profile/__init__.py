"""What is in the partitions of log directories, counted: records, bytes, codecs, keys, times."""

from __future__ import annotations

from kafkalog.profile.model import CodecUse, HotKey, Profile, TimeBucket
from kafkalog.profile.run import profile_logs

__all__ = ["CodecUse", "HotKey", "Profile", "TimeBucket", "profile_logs"]
