"""What did each consumer group commit last, and how far from the end of the log is that?

Usage: python examples/committed_offsets.py [LOG_DIR]
"""

from __future__ import annotations

import sys
from pathlib import Path

import kafkalog
from kafkalog.payloads.internal_topics import PayloadKind, decode


def committed_offsets(log_dir: kafkalog.LogDir) -> dict[tuple[str, str, int], int]:
    """(group, topic, partition) to offset; a tombstone takes a group's offset away."""
    committed: dict[tuple[str, str, int], int] = {}
    for log in log_dir.values():
        if log.topic != "__consumer_offsets":
            continue
        # Without the commits of aborted transactions.
        for record in log.records(isolation="read_committed", data=True):
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
    log_dir = kafkalog.LogDir(path)
    for (group, topic, number), offset in sorted(committed_offsets(log_dir).items()):
        log = log_dir.get(f"{topic}-{number}")
        end = None if log is None else log.offsets.log_end_offset.value
        lag = "unknown" if end is None else str(end - offset)
        print(f"group {group}, {topic}-{number}: committed {offset}, lag {lag}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir"))
