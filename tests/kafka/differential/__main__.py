"""`python -m tests.kafka.differential`: thousands of random logs through Kafka and through us.

Ends with status 1 if a case differs, and keeps the files of that case. Subject and seed repeat a
case.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.kafka import broker_data
from tests.kafka.differential.cases import SUBJECTS, Report, run_cases
from tests.kafka.oracle import Oracle

CASES_OF_A_PROCESS = 100


def main() -> int:
    """Run the cases, report the differences, and return the exit status."""
    arguments = _parser().parse_args()
    broker_data.build()
    seed = random.randrange(1 << 31) if arguments.seed is None else arguments.seed
    arguments.to.mkdir(parents=True, exist_ok=True)
    place = arguments.to.resolve()
    subjects = arguments.only or list(SUBJECTS)
    pieces = [
        (subject, range(first, min(first + CASES_OF_A_PROCESS, seed + arguments.cases)))
        for first in range(seed, seed + arguments.cases, CASES_OF_A_PROCESS)
        for subject in subjects
    ]
    print(f"{arguments.cases} cases of {', '.join(subjects)}, seed {seed}", flush=True)
    done = differ = 0
    with ProcessPoolExecutor(arguments.workers) as pool:
        for running in as_completed(
            [pool.submit(_run, subject, seeds, place) for subject, seeds in pieces]
        ):
            report = running.result()
            done += report.cases
            differ += len(report.differences)
            if report.differences:
                print(report, flush=True)
            print(f"{done} of {arguments.cases * len(subjects)} cases, {differ} differ", flush=True)
    return 1 if differ else 0


def _run(subject: str, seeds: range, place: Path) -> Report:
    """Run some cases in a separate process with its own JVM."""
    with Oracle(place) as oracle:
        return run_cases(subject, seeds, place, oracle)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="of each subject (1000)")
    parser.add_argument("--seed", type=int, help="the first; a random one if not given")
    parser.add_argument("--only", action="append", choices=list(SUBJECTS))
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--to", type=Path, default=Path("soak-failures/differential"), help="for cases that differ"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
