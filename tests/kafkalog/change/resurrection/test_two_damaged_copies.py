"""`resurrect --salvage` takes each batch from whichever copy has it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.builders import flip, frames
from tests.checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

EXAMPLE = ROOT / "examples" / "log-dir" / "orders-0"
LOG = "00000000000000000250.log"
LAST = len(frames((EXAMPLE / LOG).read_bytes())) - 1


@pytest.mark.parametrize(
    ("ours", "theirs", "lost"),
    [
        ((3,), (5,), ()),
        ((3, 4, 5), (0, 7), ()),
        ((0, LAST), (1, LAST - 1), ()),
        ((3, 4, 5), (5, 6), (5,)),
        ((2, 3), (2, 3), (2, 3)),
    ],
)
def test_each_batch_comes_from_the_copy_that_has_it(
    ours: tuple[int, ...], theirs: tuple[int, ...], lost: tuple[int, ...], tmp_path: Path,
    kafkalog: Run,
):  # fmt: skip
    """What is damaged in all of them is lost, and nothing else; the manifest says so."""
    data = (EXAMPLE / LOG).read_bytes()
    places = [(start, start + size) for start, size in frames(data)]
    for name, hurt in (("one", ours), ("two", theirs)):
        damaged = data
        for number in hurt:
            damaged = flip(damaged, 8 * (places[number][1] - 1))
        shutil.copytree(EXAMPLE, tmp_path / name / "orders-0")
        (tmp_path / name / "orders-0" / LOG).write_bytes(damaged)
    copies = (tmp_path / "one" / "orders-0", tmp_path / "two" / "orders-0")
    done = kafkalog("resurrect", *copies, "--to", tmp_path / "to", "--salvage")
    assert done.status == 8, done
    wanted = b"".join(data[slice(*place)] for i, place in enumerate(places) if i not in lost)
    assert (tmp_path / "to" / "log" / "orders-0" / LOG).read_bytes() == wanted
    rows = map(json.loads, (tmp_path / "to" / "manifest.ndjson").read_text().splitlines())
    missing: set[int] = set()
    for row in rows:
        if row["type"] == "lost_range" and row["first_offset"] is not None:
            missing.update(range(row["first_offset"], row["last_offset"] + 1))
    offsets = [int.from_bytes(data[start : start + 8], "big") for start, _ in places]
    assert missing == {
        one for i in lost for one in range(offsets[i], [*offsets, 500][i + 1])
    }  # fmt: skip
