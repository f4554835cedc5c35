"""`kafka-dump-log` against Kafka's tool, on each file of the corpus with each of its options.

The release is that of the tool that runs, whatever wrote the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import copy_tree, healthy
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import State

pytestmark = pytest.mark.kafka

DIED: Final = "Exception in thread"
NUMBERS: Final = ("Integer", "Long")
LOGS: Final = (
    "", "--deep-iteration", "--print-data-log", "--deep-iteration --print-data-log",
    "--deep-iteration --skip-record-metadata", "--print-data-log --skip-record-metadata",
    "--max-bytes 5000", "--print-data-log --max-bytes 5000",
    "--value-decoder-class org.apache.kafka.tools.api.StringDecoder",
    *(f"--key-decoder-class org.apache.kafka.tools.api.{one}Decoder" for one in NUMBERS),
    *(f"--value-decoder-class org.apache.kafka.tools.api.{one}Decoder" for one in NUMBERS),
)  # fmt: skip
WITH_KEYS: Final = (
    "--offsets-decoder", "--transaction-log-decoder", "--share-group-state-decoder",
)  # fmt: skip
WITHOUT_KEYS: Final = ("--cluster-metadata-decoder", "--remote-log-metadata-decoder")
INDEXES: Final = (
    "", "--verify-index-only", "--index-sanity-check", "--max-message-size 100",
    "--verify-index-only --max-message-size 1000",
)  # fmt: skip


def ways_of(path: Path) -> Iterator[str]:
    """Yield the options for a file; on records without keys the tool needs a fitting decoder."""
    if path.suffix not in (".log", ".checkpoint"):
        yield from INDEXES if path.suffix.endswith("index") else ("",)
        return
    yield from LOGS
    if path.parent.name.startswith("__"):
        has_keys = not path.parent.name.startswith("__cluster_metadata")
        for decoder in (*WITHOUT_KEYS, *(WITH_KEYS if has_keys else ())):
            yield decoder
            yield f"{decoder} --skip-record-metadata"


@pytest.mark.sampled(60)
def test_each_file_is_printed_as_by_the_tool(
    any_state: State,
    harness: None,
    tmp_path: Path,
    kafkalog: Any,
    monkeypatch: pytest.MonkeyPatch,
    tell: Callable[[str], None],
) -> None:
    """The same bytes and status; where the tool dies, what it had printed up to then."""
    assert harness is None
    copy = copy_tree(any_state.root, tmp_path / "state")  # the tool may change what it reads
    monkeypatch.chdir(copy)
    calls = [
        [*way.split(), "--files", str(path.relative_to(copy))]
        for path in sorted(copy.rglob("*"))
        if path.is_file()
        for way in ways_of(path)
    ]
    version, *answers = broker_data.dump([["--version"], *calls], cwd=copy)
    release = version.stdout.decode().rpartition(".")[0]
    died = 0
    for call, wanted in zip(calls, answers, strict=True):
        found = kafkalog("kafka-dump-log", "--kafka", release, *call)
        if DIED in wanted.stderr:
            died += 1
            assert found.stdout.startswith(wanted.stdout), call
            continue
        assert found.stdout == wanted.stdout, (call, found.stderr)
        assert found.status == wanted.exit or not healthy(any_state), (call, found.stderr)
    assert len(calls) - died > 10
    tell(f"{any_state.name}: {len(calls)} dumps as by {release}, which died in {died}")
