"""Targets that read whole partition directories, and those that run commands over them."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kafkalog.check.verify import Verification
from kafkalog.errors import KafkaLogError
from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.log.columns import chunks, headers, pipeline, side_files
from kafkalog.log.text import kafka_text, objects
from kafkalog.model import Level
from kafkalog.node import inventory
from kafkalog.node.recovery import (
    NodeDir,
    NodeStart,
    StartMode,
    Verdict,
    predict_start,
    start_line,
)
from kafkalog_cli.main import run
from kafkalog_cli.output import bulk
from tests.kafkalog_cli.test_terminal_safety import is_safe
from tests.soak import generated, real
from tests.soak.mutations import mutated, number
from tests.soak.on_files import kernels, log_input
from tests.soak.target import Place, Target
from tests.sweeps import STATUSES, look_up_in_every_way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.soak.real import Files


def partition_input(rng: Random) -> Files:
    """Return a partition with some files damaged, or a made log with made indexes."""
    if rng.random() < 0.7:
        return generated.partition(rng)
    name = f"{rng.choice((0, 0, 0, 7, 2**62)):020d}"
    files = {f"{name}.log": log_input(rng)["log"]}
    for suffix in generated.INDEXES:
        if rng.random() < 0.7:
            files[f"{name}.{suffix}"] = generated.index(rng, suffix)
    if rng.random() < 0.5:
        files[f"{name}.snapshot"] = generated.snapshot(rng)
    return files


def log_dir_input(rng: Random) -> Files:
    """Return partitions, and files at the top of the log directory."""
    files = {
        f"orders-{i}/{name}": data
        for i in range(rng.randrange(3))
        for name, data in partition_input(rng).items()
    }
    for name, data in rng.choices(real.log_dir_files(), k=rng.randrange(5)):
        files[name] = mutated(data, rng) if rng.random() < 0.6 else data
    return files


def check_verify(files: Files, rng: Random, place: Place) -> None:
    """Expect the same findings with the kernels and without."""
    directory = str(place.put(files))
    level = rng.choice(list(Level))
    with kernels(on=False):
        wanted = _verdict(directory, level)
    with (
        kernels(on=True),
        patch.object(chunks, "CHUNK_SIZE_MIN", 200),
        patch.object(headers, "_BATCHES_AT_ONCE", 3),
        patch.object(side_files, "_ENTRIES_AT_ONCE", 2),
    ):
        assert _verdict(directory, level) == wanted


def _verdict(path: str, level: Level) -> Any:
    verification = Verification(level)
    try:
        found = list(verification.verify(path))
    except KafkaLogError as error:
        return str(error)
    return found, vars(verification.summary)


def check_lookup(files: Files, _rng: Random, place: Place) -> None:
    """Look up offsets, times and special offsets: an answer or one of our errors."""
    look_up_in_every_way(place.put(files))


def check_start(files: Files, rng: Random, place: Place) -> None:
    """Expect a prediction in each mode, and a line for it."""
    directory = str(place.put(files, "orders-0"))
    for mode in (None, *StartMode):
        point = rng.choice((None, rng.randrange(80), number(rng)))
        try:
            found = predict_start(directory, mode, recovery_point=point)
        except KafkaLogError:
            continue
        assert start_line(found)
        assert (found.loaded is None) == (found.verdict == Verdict.REFUSE)


def check_log_dir(files: Files, rng: Random, place: Place) -> None:
    """List, check and start a whole log directory."""
    place.put(files, "log-dir")
    path = str(place.path / "log-dir")
    with suppress(KafkaLogError):
        target = open_path(path)
        for list_them in (inventory.list_log_dirs, inventory.list_partitions,
                          inventory.list_segments, inventory.list_files):  # fmt: skip
            with suppress(KafkaLogError):
                list(list_them([target]))
        if isinstance(target, LogDirListing):
            node = NodeStart([NodeDir(target)])
            for partition in target.partitions:
                predict_start(partition, hosting=node.hosting)
    _verdict(path, rng.choice(list(Level)))


FORMATS = ("table", "ndjson", "json", "csv", "kafka")
SELECTIONS: tuple[tuple[object, ...], ...] = (
    (), (), ("--batches",), ("--from-offset", 5, "--to-offset", 40),
    ("--limit", 3), ("--batches", "--limit", 2), ("--isolation", "read_committed",), ("--control",),
    ("--value-format", "text"), ("--from-position", 100),
    ("--key-regex", "[1-5]$"), ("--value-regex", "a", "--limit", 3), ("--header", "source"),
    ("--producer-id", 7), ("--exact",), ("--from-time", "@-5"),
)  # fmt: skip
DECODERS = ("offsets", "transaction-log", "cluster-metadata", "remote-log-metadata",
            "share-group-state")  # fmt: skip
TOPICS = ("t-0", "__consumer_offsets-0", "__cluster_metadata-0", "__transaction_state-7",
          "__remote_log_metadata-1", "__share_group_state-2")  # fmt: skip


def check_dump_segment(files: Files, rng: Random, place: Place) -> None:
    """Expect the same output of `dump-segment` in all formats, with the kernels and without."""
    directory = place.put(files, rng.choice(TOPICS))
    form = rng.choice(FORMATS)
    target = directory / rng.choice(sorted(files)) if files and rng.random() < 0.5 else directory
    argv = ["dump-segment", target, "--format", form, *rng.choice(SELECTIONS)]
    if form != "kafka" and rng.random() < 0.5:
        shown = rng.choice(("text", "hex", "base64"))
        argv += ["--key-format", shown, "--value-format", shown]
    _check_same(argv, form)


def check_kafka_dump_log(files: Files, rng: Random, place: Place) -> None:
    """Expect the same output of `kafka-dump-log` with its options, with the kernels and without."""
    directory = place.put(files, rng.choice(TOPICS))
    argv: list[object] = ["kafka-dump-log", "--files", directory / rng.choice(sorted(files))]
    flags = ("--deep-iteration", "--print-data-log", "--skip-record-metadata",
             "--verify-index-only")  # fmt: skip
    argv += [flag for flag in flags if rng.random() < 0.4]
    if rng.random() < 0.1:
        argv.append("--index-sanity-check")
    if rng.random() < 0.2:
        argv.append(f"--{rng.choice(DECODERS)}-decoder")
    if rng.random() < 0.1:
        argv += ["--max-bytes", rng.randrange(900)]
    if rng.random() < 0.1:
        argv += ["--value-decoder-class", "org.apache.kafka.tools.api.LongDecoder"]
    _check_same(argv, "kafka")


def check_other_commands(files: Files, rng: Random, place: Place) -> None:
    """Run `ls`, `verify` and `lookup-offset` in all formats."""
    directory = place.put(files)
    form = rng.choice(FORMATS[:4])
    argv: list[object] = rng.choice((
        ["ls", directory], ["ls", "--files", directory], ["ls", "--segments", directory],
        ["verify", directory], ["verify", directory, "--level", "deep"],
        ["verify", directory, "--level", "quick"],
        ["lookup-offset", directory, rng.randrange(90), "--show", "--steps"],
        ["lookup-offset", directory, "--timestamp", 1_700_000_000_003, "--show"],
        ["lookup-offset", directory, "--special", "max-timestamp", "--no-index"],
        ["lookup-offset", directory, "--special", "latest", "--isolation", "read_committed"],
    ))  # fmt: skip
    with kernels(on=False):
        _check_output(outcome([*argv, "--format", form]), form)


def _check_same(argv: list[object], form: str) -> None:
    with kernels(on=False):
        wanted = outcome(argv)
    with kernels(on=True), small_steps():
        found = outcome(argv)
    assert found[0] == wanted[0], (argv, found[0], wanted[0])
    assert found[2] == wanted[2], argv
    assert found[1] == wanted[1], argv
    _check_output(wanted, form)


def _check_output(found: tuple[int, bytes, str], form: str) -> None:
    """Require a status of the contract, words that are safe to show, JSON that is valid."""
    status, data, words = found
    assert status in {*STATUSES, 2}, (status, words)
    assert "Traceback" not in words
    assert is_safe(words), words
    if form == "kafka":
        return
    assert is_safe(data), data
    if form == "ndjson":
        for line in data.splitlines():
            assert "type" in json.loads(line)
    elif form == "json" and data:
        assert isinstance(json.loads(data), list)


@contextmanager
def small_steps() -> Iterator[None]:
    """Make chunks, blocks and rows so small that little data fills several."""
    with (
        patch.object(bulk, "_FEW_ROWS", -1),
        patch.object(kafka_text.KafkaText, "rows_max", 5),
        patch.object(objects.RecordLines, "rows_max", 5),
        patch.object(pipeline.Restored, "rows_max", 5),
        patch.object(chunks, "CHUNK_SIZE_MIN", 200),
        patch.object(side_files, "_ENTRIES_AT_ONCE", 4),
        patch.object(side_files, "_JUMP", 100),
        patch.object(side_files, "_ROWS", 3),
    ):
        yield


def outcome(argv: list[object]) -> tuple[int, bytes, str]:
    """Run a command in this process; return status, stdout and stderr."""
    data = io.BytesIO()
    out, words = io.TextIOWrapper(data, "utf-8", write_through=True), io.StringIO()
    with patch.object(sys, "stdout", out), patch.object(sys, "stderr", words):
        status = run([os.fspath(one) if isinstance(one, os.PathLike) else str(one) for one in argv])
        out.flush()
    return status, data.getvalue(), words.getvalue()


def directory_target(
    name: str,
    share: int,
    check: Callable[[Files, Random, Place], None],
    make: Callable[[Random], Files] = partition_input,
) -> Target:
    """Return a target over partition directories."""
    return Target(name, share, make, check)


TARGETS = (
    directory_target("verify", 1_200, check_verify),
    directory_target("lookup", 800, check_lookup),
    directory_target("start", 1_200, check_start),
    directory_target("log-dir", 500, check_log_dir, log_dir_input),
    directory_target("dump-segment", 700, check_dump_segment),
    directory_target("kafka-dump-log", 700, check_kafka_dump_log),
    directory_target("commands", 400, check_other_commands),
)
