"""Defaults come from the command line, the environment and files, in this order; never consent."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]
    Write = Callable[[str], Path]

LOG_DIR = "examples/log-dir"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the config file of this user."""

    def written(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("KAFKALOG_CONFIG", str(path))
        return path

    return written


def topics(result: Result) -> list[str]:
    assert result.status == 0, result.stderr
    rows = map(json.loads, result.stdout.splitlines())
    return [row["topic"] for row in rows if row["type"] == "partition"]


def test_each_source_comes_before_the_next(
    kafkalog: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command line, environment, section of the command, defaults, our default."""
    ls = ("ls", LOG_DIR, "-o", "ndjson")
    everything = topics(kafkalog(*ls))
    write("[defaults]\nlimit = 5\n")
    assert topics(kafkalog(*ls)) == everything[:5]
    write("[defaults]\nlimit = 5\n[command.ls]\nlimit = 4\n")
    assert topics(kafkalog(*ls)) == everything[:4]
    monkeypatch.setenv("KAFKALOG_LS_LIMIT", "3")
    assert topics(kafkalog(*ls)) == everything[:3]
    assert topics(kafkalog(*ls, "-n", "2")) == everything[:2]


def test_a_place_gives_paths_and_options(kafkalog: Run, write: Write) -> None:
    """What belongs to a place holds only where it is named; the command line comes first."""
    write(f'[place.ex]\npaths = ["{LOG_DIR}"]\ninternal = false\nlimit = 2\n')
    at_place = topics(kafkalog("ls", "@ex", "-o", "ndjson"))
    assert at_place == topics(kafkalog("ls", LOG_DIR, "--no-internal", "-n", "2", "-o", "ndjson"))
    assert len(topics(kafkalog("ls", "@ex", "-n", "3", "-o", "ndjson"))) == 3


def test_a_registry_of_a_place_is_used_where_something_is_decoded(
    kafkalog: Run, write: Write, tmp_path: Path
) -> None:
    """On the command line it must mean something."""
    write(f'[place.ex]\npaths = ["{LOG_DIR}"]\nregistry = "{tmp_path}"\n')
    find = ("find", "@ex", "-t", "orders", "-k", "user-6", "-n", "1")
    assert kafkalog(*find).status == 0
    assert kafkalog("profile", "@ex", "-t", "orders").status == 0
    assert kafkalog(*find, "-r", tmp_path).status == 6  # it has no schemas
    assert str(tmp_path) in kafkalog(*find, "--value-format", "avro").stderr


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[defaults]\nlimits = 1\n", "defaults.limit"),
        ("[default]\n", "defaults"),
        ("[command.ls]\nsorted = 1\n", "command.ls.sort"),
        ("[defaults]\napply = true\n", "--apply"),
        ("[command.ls]\nbackup = 'x'\n", "--backup"),
        ("[place.ex]\npaths = ['examples/log-dir']\nyes = true\n", "--yes"),
        ("[place.ex]\n", "paths"),
        ("[place]\nex = 1\n", "place.ex"),
        ("[place.ex]\npaths = ['x']\n[place.ex.topic.t]\nlimit = 1\n", "place.ex.topic"),
        ("[defaults\n", "TOML"),
        ("[command.ls]\nlimit = 'x'\n", "--limit"),
    ],
)  # fmt: skip
def test_a_wrong_config_is_an_error_that_names_it(
    kafkalog: Run, write: Write, text: str, named: str
) -> None:
    """No option of a file is passed over, and none of them consents to a change."""
    write(text)
    result = kafkalog("ls", "@ex" if "place" in text else LOG_DIR)
    assert (result.status, result.stdout) == (2, b"")
    assert named in result.stderr


def test_a_file_that_others_may_write_is_refused(kafkalog: Run, write: Write) -> None:
    """Somebody else could choose what a command of this user reads."""
    path = write("[defaults]\n")
    path.chmod(0o666)
    assert kafkalog("ls", LOG_DIR).status == 2


def test_no_variable_consents(
    kafkalog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option about safety is given on the command line only."""
    monkeypatch.setenv("KAFKALOG_SALVAGE_TO", str(tmp_path / "salvaged"))
    kafkalog("salvage", LOG_DIR)
    assert not (tmp_path / "salvaged").exists()


def test_a_place_that_is_not_there_is_an_error(kafkalog: Run, write: Write) -> None:
    """A typo names the place that it may mean; without a file, nothing is read."""
    write(f'[place.prod]\npaths = ["{LOG_DIR}"]\n')
    assert "@prod" in kafkalog("ls", "@prof").stderr
    os.environ["KAFKALOG_CONFIG"] = os.devnull
    assert kafkalog("ls", "@prod").status == 2
    assert kafkalog("ls", LOG_DIR).status == 0


def test_explain_config_says_where_each_value_comes_from(kafkalog: Run, write: Write) -> None:
    """As `git config --show-origin` does."""
    path = write('[defaults]\ntz = "Europe/Berlin"\n')
    shown = kafkalog("explain", "config").stdout.decode()
    assert f"defaults.tz = 'Europe/Berlin'  ({path})" in shown
