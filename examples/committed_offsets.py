"""The offsets that consumer groups committed last, and how far behind the log's end they are.

Usage: python examples/committed_offsets.py [LOG_DIR]
"""

from __future__ import annotations

import sys
from pathlib import Path

import kafkalog
from kafkalog.payloads.internal_topics import PayloadKind, decode

COMMITTED = kafkalog.Selection(read_committed=True)  # without commits of aborted transactions


def committed_offsets(log_dir: kafkalog.LogDir) -> dict[tuple[str, str, int], int]:
    """(group, topic, partition) to offset; a tombstone takes a group's offset away."""
    committed: dict[tuple[str, str, int], int] = {}
    for partition in log_dir.partitions:
        if partition.topic != "__consumer_offsets":
            continue
        for record in kafkalog.read_records(partition, COMMITTED):
            if isinstance(record, kafkalog.Defect) or record.batch.is_control:
                continue
            message = decode(PayloadKind.OFFSETS, record.key, record.value)
            if message.error or message.key is None or message.key["type"] not in ("0", "1"):
                continue  # group metadata, or a version of a newer Kafka
            group = message.key["data"]
            where = (group["group"], group["topic"], group["partition"])
            if message.value is None:
                committed.pop(where, None)
            else:
                committed[where] = message.value["data"]["offset"]
    return committed


def main(path: str) -> None:
    log_dir = kafkalog.open_path(path)
    if not isinstance(log_dir, kafkalog.LogDir):
        sys.exit(f"{path} is not a log directory")
    ends = {
        (partition.topic, partition.partition): kafkalog.UnifiedLog(partition).log_end_offset
        for partition in log_dir.partitions
    }
    for (group, topic, number), offset in sorted(committed_offsets(log_dir).items()):
        end = ends.get((topic, number))
        lag = "unknown" if end is None else str(end - offset)
        print(f"group {group}, {topic}-{number}: committed {offset}, lag {lag}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir"))
