"""Runs a share of the soak, and tests that the soak notices what it looks for."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

from tests.sampling import tries_everything
from tests.soak import bad_targets, generated, on_commands
from tests.soak.__main__ import save, table
from tests.soak.soaking import Slice, Soak, slices
from tests.soak.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from tests.soak.target import Target

SEED = 20261121
SHARE = 4_000 if tries_everything() else 1_500
SEALED_SHARE = 150 if tries_everything() else 60


def test_a_share_of_the_soak():
    """The inputs are the same every time, for all decoders and kernels.

    `make soak` has a million.
    """
    check_share([one for one in TARGETS if one not in on_commands.TARGETS], SHARE, size=200)


def test_a_share_of_sealed_logs_through_every_command():
    """Any field may be off under a correct checksum: no failure of ours, and the kernels agree."""
    check_share(on_commands.TARGETS, SEALED_SHARE, size=50)


def check_share(targets: Sequence[Target], share: int, size: int) -> None:
    workers = min(len(os.sched_getaffinity(0)), 2) if tries_everything() else 1
    report = Soak(slices(targets, share, SEED, size=size), workers).run()
    assert not report.failures, "\n".join(f"{one.command}\n{one.what}" for one in report.failures)
    assert report.inputs.total() > 0.95 * share
    assert set(report.inputs) == {target.name for target in targets}
    assert report.peak_bytes < 400 << 20


def soaked(*names: str, inputs: int = 30, deadline_s: float = 60.0) -> dict[str, list[str]]:
    """Soak the bad targets; return the failures of each."""
    pieces = [Slice(name, SEED, 0, inputs) for name in names]
    soak = Soak(pieces, 1, targets="tests.soak.bad_targets", deadline_s=deadline_s)
    report = soak.run()
    assert {name: report.inputs[name] for name in names} == dict.fromkeys(names, inputs)
    found: dict[str, list[str]] = {name: [] for name in names}
    for failure in report.failures:
        assert "warm-up" not in failure.what
        found[failure.name].append(failure.what)
    return found


def test_what_is_promised_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    """A foreign exception, a read outside an array, and memory are seen; a good target passes."""
    monkeypatch.setenv("KAFKALOG_GUARDED", "1")
    found = soaked("behave", "fail", "crash", "eat")
    assert not found["behave"]
    assert found["fail"]
    assert all("IndexError: list index out of range" in what for what in found["fail"])
    assert len(found["crash"]) > 2, "a byte before an array, or one after it, is not noticed"
    assert all("status -11" in what and "in crash" in what for what in found["crash"])
    assert found["eat"]
    assert all("MiB of memory" in what or "MemoryError" in what for what in found["eat"])


def test_a_hang_is_ended():
    """Its stacks are reported, and the following inputs are soaked, too."""
    found = soaked("hang", inputs=12, deadline_s=1.5)
    assert found["hang"]
    assert all("no answer within" in what and "in hang" in what for what in found["hang"])


def test_an_input_is_made_again_from_its_seed(tmp_path: Path):
    """A failure is reported with its number, and saved as files."""
    for target in TARGETS:
        assert target.input(SEED, 7)[0] == target.input(SEED, 7)[0]
    report = Soak([Slice("fail", SEED, 0, 30)], 1, targets="tests.soak.bad_targets").run()
    failure = report.failures[0]
    place = save(failure, tmp_path, bad_targets.TARGETS)
    assert (place / "nothing").read_bytes() == b"x"
    assert (
        f"--seed {SEED} --first {failure.ordinal} --inputs 1" in (place / "failure.txt").read_text()
    )
    assert table(report, bad_targets.TARGETS).splitlines()[-1].startswith("peak memory")


def test_inputs_are_varied():
    """Few inputs are equal, so the generators have an effect."""
    made = [generated.log(Random(f"{SEED}/{number}")) for number in range(500)]
    assert len(set(made)) > 480
    for target in TARGETS:
        inputs = {repr(target.input(SEED, number)[0]) for number in range(200)}
        assert len(inputs) > 90, target.name
