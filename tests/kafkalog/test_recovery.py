"""Predicted starts against what Kafka 4.3's loader did with the same 117 directories."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.recovery import StartConfig, StartMode
from tests.kafkalog import replay

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = StartConfig(
    index_interval_bytes=200, segment_index_bytes=65536, now_ms=1_700_086_400_000
)


@pytest.fixture(scope="module")
def scenarios(corpus_dir: Path) -> list[Path]:
    return sorted(path for path in (corpus_dir / "recovery").iterdir() if path.is_dir())


def facts_of(scenario: Path) -> dict[str, Any]:
    return json.loads((scenario / "facts.json").read_text())


@pytest.mark.parametrize("mode", StartMode)
def test_x(scenarios: list[Path], mode: StartMode, tmp_path: Path) -> None:
    bad = []
    for scenario in scenarios:
        facts = facts_of(scenario)
        wanted = facts["modes"][mode]
        copy = tmp_path / scenario.name
        shutil.copytree(scenario, copy)
        partition = copy / "orders-0"
        try:
            predicted = replay.predict_and_perform(partition, mode, CONFIG)
        except Exception as e:
            import traceback
            bad.append((scenario.name, traceback.format_exc()[-800:])); continue
        if "error" in wanted:
            got = predicted.refusal and predicted.refusal.error
            if got != wanted["error"].rpartition(".")[2]:
                bad.append((scenario.name, got, predicted.refusal, wanted["error"], wanted["message"]))
            continue
        if predicted.refusal:
            bad.append((scenario.name, predicted.refusal)); continue
        got = replay.loaded_facts(predicted)
        for s in wanted["log"]["segments"]: s.pop("nextOffset")
        for k in got:
            if got[k] != wanted["log"][k]:
                bad.append((scenario.name, k, got[k], wanted["log"][k]))
        gf = replay.files(partition)
        wf = {k: [v[0], "-" if k.endswith("snapshot") else v[1]] for k, v in wanted["files"].items()}
        for k in sorted(set(gf) | set(wf)):
            if gf.get(k) != wf.get(k):
                bad.append((scenario.name, k, gf.get(k), wf.get(k)))
        gs = replay.snapshots(partition)
        ws = {k: sorted(v, key=lambda p: p["producerId"]) for k, v in wanted["producerSnapshots"].items()}
        if gs != ws: bad.append((scenario.name, "snapshots", [k for k in gs if gs[k]!=ws.get(k)]))
    for b in bad: print(*b)
    assert not bad, len(bad)
