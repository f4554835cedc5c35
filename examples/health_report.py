"""Is each partition of a log directory sound, and which offsets does it have?

Usage: python examples/health_report.py [LOG_DIR]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import kafkalog


def main(path: str) -> int:
    status = 0
    for name, log in kafkalog.LogDir(path).items():
        findings = log.verify()
        found = Counter(defect.reference for defect in findings)
        words = ", ".join(f"{count} {reference}" for reference, count in sorted(found.items()))
        offsets = log.offsets
        print(
            f"{name}: {counted(findings.summary.records, 'record')} in "
            f"{counted(len(log.segments), 'segment')}, "
            f"offsets {offsets.log_start_offset.value} to {offsets.log_end_offset.value}, "
            f"stable up to {offsets.last_stable_offset.value}, {words or 'sound'}"
        )
        status = max(status, int(findings.summary.defects[kafkalog.Severity.DAMAGE] > 0))
    return status


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir")))
