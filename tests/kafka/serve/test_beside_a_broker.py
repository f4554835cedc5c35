"""A real broker and `kafkalog serve` give the same answers to the same requests."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from formats.error_codes import ErrorCode
from tests.kafka.booted import answers
from tests.kafka.serve import beside, served
from tests.kafka.serve.conftest import WHOLE
from tests.kafka.serve.drawn_requests import Drawer
from tests.sampling import new_seed, sampled, tries_everything

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.wire.server.model import Address
    from tests.kafka.booted import Brokers
    from tests.kafka.serve.gathered import Gathered
    from tests.kafka.serve.served import Server

pytestmark = pytest.mark.kafka

REQUESTS = 20_000 if tries_everything() else 600
ENOUGH = REQUESTS if tries_everything() else 150
"""So many will do once each of ERRORS was among the answers."""
TIMES_ONE_OF = 6
SHOWN_MAX = 5
ERRORS = {
    ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSUPPORTED_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
}  # fmt: skip
"""What drawn requests are answered, among others."""


@pytest.fixture(scope="module")
def kafka(
    brokers: Brokers, gathered: Gathered, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Address, list[Path]]]:
    """A broker on a copy of the gathered logs: its address and its log directories."""
    home = tmp_path_factory.mktemp("kafka") / "home"
    with beside.running_kafka(brokers, gathered, home) as running:
        yield running


def test_drawn_requests_are_answered_as_by_a_broker(
    kafka: tuple[Address, list[Path]], gathered: Gathered, server: Server, tmp_path: Path
) -> None:
    """`kafkalog serve` reads the original files, and a second one the files of the running broker.

    The requests cover four APIs in all their versions, with valid ones and some at the borders of
    what is valid. `beside.EXCLUDED` lists what may differ.
    """
    address, log_dirs = kafka
    seed = new_seed()
    print("seed", seed)
    with served.running_serve(log_dirs, tmp_path / "beside", *WHOLE) as other:
        require_same(
            {"kafka": address, "originals": server.endpoint, "its files": other.endpoint},
            gathered, random.Random(seed),
        )  # fmt: skip


def require_same(addresses: dict[str, Address], gathered: Gathered, rng: random.Random) -> None:
    asked: Counter[tuple[str, int]] = Counter()
    errors: Counter[int] = Counter()
    found: list[str] = []
    with beside.sides(addresses) as [kafka, *others]:
        logs = beside.known_logs(kafka, others[0], gathered)
        by_name = {(log.topic, log.number): log for log in logs}
        for request in Drawer(logs, rng).requests(REQUESTS):
            if asked.total() >= ENOUGH and errors.keys() >= ERRORS:
                break
            asked[request.api, request.version] += 1
            wanted = beside.answers(kafka, by_name, kafka.ask(request))
            rows = [row for some in wanted.values() for row in some]
            errors.update(row["errorCode"] for row in rows if "errorCode" in row)
            for side in others:
                got = beside.answers(side, by_name, side.ask(request))
                lines = list(beside.different(wanted, got))
                if lines:
                    shown = "\n  ".join((str(request)[:2000], *lines[:SHOWN_MAX]))
                    found.append(f"{side.name}: {shown}")
    print("asked", sorted(asked.items()), "errors", sorted(errors.items()))
    assert not found, f"{len(found)} answers differ:\n" + "\n".join(found[:SHOWN_MAX])
    assert errors.keys() >= ERRORS


def test_every_recorded_target_of_list_offsets(
    brokers: Brokers, gathered: Gathered, server: Server
) -> None:
    """The Admin client asks, at both isolation levels, for special offsets and for times.

    The run takes a share of the times, or all of them in `make test-all`.
    """
    recorded = {
        one.name: answers(one.lookups) for one in gathered.partitions.values() if one.lookups
    }
    targets = {
        name: sampled([time for time in told["read_uncommitted"] if time.isdigit()], TIMES_ONE_OF)
        for name, told in recorded.items()
    }
    told = brokers.ask("list-offsets", server.address, targets)
    count = 0
    different = []
    for name, levels in recorded.items():
        for isolation, questions in levels.items():
            for question, wanted in questions.items():
                if question.isdigit() and question not in targets[name]:
                    continue
                count += 1
                got = told[name][isolation][question]
                if wanted[2] < 0 or question == "latest":  # other leaders came, before or after
                    got, wanted = got[:2], wanted[:2]
                if got != wanted:
                    different.append(f"{name} {isolation} {question}: {got}, but was {wanted}")
    print(count, "targets")
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:SHOWN_MAX])
    assert count > 3_000
