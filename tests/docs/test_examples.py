"""The scripts in `examples/` print what their `.out` files say; the damaged log is as described."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import batch, record, write_log
from tests.checkout import ROOT
from tests.kafkalog.log.typed.test_serialized import as_topic
from tests.kafkalog_cli.test_record_types import CASES, values_of
from tests.sampling import tries_everything

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
ON_SPARK = [name for name in SCRIPTS if "spark_session(" in (EXAMPLES / name).read_text()]


@pytest.mark.parametrize(
    "name", [one for one in SCRIPTS if one not in ON_SPARK or tries_everything()]
)
def test_script_prints_what_it_should(name: str, tmp_path: Path) -> None:
    """Each script runs from any directory, without arguments."""
    script = EXAMPLES / name
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == script.with_suffix(".out").read_text()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ON_SPARK)
def test_examples_with_spark_run(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In the session of the tests; `make test-all` also lets each script start its own."""
    script = EXAMPLES / name
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    captured = capfd.readouterr()
    assert captured.err == ""
    assert captured.out == script.with_suffix(".out").read_text()


def test_scripts_are_listed() -> None:
    """`examples/README.md` names each of them."""
    text = (EXAMPLES / "README.md").read_text()
    assert len(SCRIPTS) >= 4
    assert [name for name in SCRIPTS if name not in text] == []


def test_health_report_finds_the_damage() -> None:
    """The report names the damage, and the exit status is 1."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "health_report.py", EXAMPLES / "damaged"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 1
    assert "1 batch-crc-mismatch, 1 batch-length-invalid" in done.stdout


def test_typed_logs_have_the_values_of_serializers(tmp_path: Path) -> None:
    """Those of Avro and Protobuf, and a tombstone."""
    typed_logs(tmp_path)
    for name in ("_schemas-0", "events-0"):
        [log] = (tmp_path / name).iterdir()
        assert (EXAMPLES / "typed" / name / log.name).read_bytes() == log.read_bytes()


def typed_logs(place: Path) -> None:
    """Write what is in `examples/typed`."""
    case = CASES["record"]
    as_topic(place, case["versions"])
    values = [*values_of(case, "AVRO", "PROTOBUF"), (None, [])]
    records = [record(n, b"k", one, headers=ids) for n, (one, ids) in enumerate(values)]
    write_log(place / "events-0", batch(0, records))


def test_damaged_log_differs_in_two_bits() -> None:
    """The pages describe `examples/damaged`: one bit in a record, one in a length."""
    name = Path("orders-0") / "00000000000000000250"
    for suffix in (".index", ".timeindex"):
        damaged, sound = (EXAMPLES / place / f"{name}{suffix}" for place in ("damaged", "log-dir"))
        assert damaged.read_bytes() == sound.read_bytes()
    damaged, sound = (
        (EXAMPLES / place / f"{name}.log").read_bytes() for place in ("damaged", "log-dir")
    )
    assert len(damaged) == len(sound)
    pairs = enumerate(zip(damaged, sound, strict=True))
    changes = {place: bad ^ good for place, (bad, good) in pairs if bad != good}
    assert changes == {1862 + 300: 0x10, 6037 + 8: 0x40}
