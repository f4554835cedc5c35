"""`quorum` on the command line: rows in each format, the lines below, statuses."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog as library
from kafkalog.errors import UnreadableError
from kafkalog.files import log_dir as listings
from kafkalog_cli.app import all_commands
from tests.builders import flip
from tests.nodes import METADATA, identify, uuid, write_node
from tests.quorums import epoch_batches, write_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Result

    Run = Callable[..., Result]

NEWEST = f"{490:020}-{1:010}.checkpoint"


@pytest.fixture(scope="module")
def killed(corpus_dir: Path) -> Path:
    return corpus_dir / "quorum" / "dynamic-4.4"


def rows(done: Result) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        found.setdefault(row.pop("type"), []).append(row)
    return found


def test_the_screen_says_who_could_be_elected(kafkalog: Run, killed: Path) -> None:
    done = kafkalog("quorum", killed / "n1", killed / "n11", "-n", "7")
    assert done.status == 1
    lines = done.stdout.decode().splitlines()
    assert [line.split() for line in lines[:6]] == [
        ["NODE", "ROLE", "DIRECTORY", "ID", "LOG", "EPOCH", "SNAPSHOT", "PROVEN", "STATE"],
        ["1", "voter", "8MfQa2V0VT2XDGOctPsCQg", "0..519", "1", "490-1", "490", "newest"],
        ["2", "lost", "W2ekg48JW9ysnf-fjd8IvA", *"-----"],
        ["3", "lost", "OltszoYtUcW4JtB5jkumuw", *"-----"],
        ["11", "observer", "YrWBnNAdlXcvhBSs-ZkXmQ", "0..519", "1", "490-1", "490", "newest"],
        ["4", "nodes"],
    ]
    assert lines[6:9] == [
        f"kraft.version 1, voters 1, 2, 3 by {NEWEST}",
        "1 of 3 voters here: nobody can be elected, which takes 2",
        "the log that counts ends at 519 in epoch 1; below 490 all is proven to be committed",
    ]
    assert lines[10].split() == ["OFFSET", "TIME", "(UTC)", "EPOCH", "TYPE", "KEY"]
    assert lines[11].split()[:1] + lines[11].split()[4:6] == ["490", "TOPIC_RECORD", "name=c116"]
    assert lines[14:] == ["3 records (-n 3)"]
    done = kafkalog("quorum", *(killed / f"n{node}" for node in (1, 3, 12)))
    assert done.status == 0
    assert done.stdout.decode().splitlines()[-3:] == [
        f"kraft.version 1, voters 1, 2, 3 by {NEWEST}",
        "2 of 3 voters here: 1, 3 can be elected, no rescue is needed",
        "the log that counts ends at 519 in epoch 1; all of it is proven to be committed",
    ]


def test_the_rows_are_those_of_the_library(kafkalog: Run, killed: Path) -> None:
    paths = killed / "n3", killed / "n12"
    found = library.quorum(*paths)
    told = rows(kafkalog("quorum", *paths, "-o", "ndjson"))
    assert told["quorum_replica"] == found.replicas.to_dicts()
    assert told["quorum_record"] == found.records.to_dicts()
    assert [one["offset"] for one in told["quorum_record"]] == [*range(490, 519)]
    [quorum] = told["quorum"]
    assert quorum["present_voters"] == [3]
    assert (quorum["majority"], quorum["candidates"], quorum["next_epoch"]) == (2, [], 2)
    assert quorum["voters"][0]["listeners"] == ["CONTROLLER://127.0.0.1:28101"]
    whole = json.loads(kafkalog("quorum", *paths, "-o", "json").stdout)
    assert [one["type"] for one in whole[:2]] == ["quorum", "quorum_replica"]
    text = kafkalog("quorum", *paths, "-o", "csv").stdout.decode()
    [first, *others] = csv.DictReader(io.StringIO(text))
    assert (first["node_id"], first["role"], len(others)) == ("1", "lost", 3)
    block = kafkalog("quorum", killed / "n3", "-x").stdout.decode()
    assert "OltszoYtUcW4JtB5jkumuw" in block
    lines = kafkalog("quorum", *paths, "-f", "{node_id} {role}\n").stdout.decode()
    assert lines.split("\n")[:2] == ["1 lost", "2 lost"]


def test_damage_is_the_answer(kafkalog: Run, killed: Path, tmp_path: Path) -> None:
    """A batch, a snapshot: the status is 1, although there is a majority."""
    paths = [shutil.copytree(killed / f"n{node}", tmp_path / f"n{node}") for node in (1, 2, 3)]
    assert kafkalog("quorum", *paths).status == 0
    log = paths[0] / METADATA / f"{344:020}.log"
    log.write_bytes(flip(log.read_bytes(), 8 * 5000))
    done = kafkalog("quorum", *paths)
    assert (done.status, "batch-crc-mismatch" in done.stderr) == (1, True)
    told = rows(kafkalog("quorum", *paths, "-o", "ndjson"))
    [defect] = told["defect"]
    assert defect["path"] == str(log)
    state = {row["node_id"]: row["states"] for row in told["quorum_replica"]}
    assert state == {1: ["damaged", "behind"], 2: ["newest"], 3: ["newest"]}
    assert told["quorum"][0]["mergeable_offset"] == 519
    assert f"damaged at {defect['offset']}" in kafkalog("quorum", *paths).stdout.decode()
    newest = paths[1] / METADATA / NEWEST
    newest.write_bytes(flip(newest.read_bytes(), 8 * 5000))
    told = rows(kafkalog("quorum", *paths, "-o", "ndjson"))
    assert told["quorum"][0]["candidates"] == [3]  # 1 is behind, 2 does not start


def test_what_cannot_be_read_is_left_out(kafkalog: Run, killed: Path, tmp_path: Path) -> None:
    paths = [shutil.copytree(killed / f"n{node}", tmp_path / f"n{node}") for node in (1, 2, 3)]
    log = paths[0] / METADATA / f"{344:020}.log"
    log.unlink()
    log.mkdir()
    done = kafkalog("quorum", *paths)
    assert (done.status, "file-unreadable" in done.stderr) == (8, True)
    assert kafkalog("quorum", *paths[1:], tmp_path / "none").status == 8
    assert kafkalog("quorum", tmp_path / "none").status == 2
    (tmp_path / "empty").mkdir()
    assert kafkalog("quorum", tmp_path / "empty").status == 3
    (paths[1] / METADATA).rename(tmp_path / "moved")
    assert kafkalog("quorum", paths[1]).status in (2, 3)


def test_copies_of_two_clusters_are_a_usage_error(kafkalog: Run, tmp_path: Path) -> None:
    first = write_copy(tmp_path, 1, epoch_batches([(1, 9)]), epoch=1)
    second = write_copy(tmp_path, 2, epoch_batches([(1, 9)]), epoch=1, cluster=uuid(98))
    done = kafkalog("quorum", first, second)
    assert (done.status, done.stdout) == (2, b"")


def test_the_voters_of_a_static_quorum_may_come_from_properties(
    kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """They count before what the log says; with records of voters they do not, as for Kafka."""
    static = corpus_dir / "quorum" / "static-4.3"
    file = tmp_path / "server.properties"
    file.write_text("controller.quorum.voters=1@h:1,2@h:2,3@h:3,4@h:4,5@h:5\n")
    paths = static / "n1", static / "n2"
    assert kafkalog("quorum", *paths).status == 0
    done = kafkalog("quorum", *paths, "--properties", file, "-o", "ndjson")
    [quorum] = rows(done)["quorum"]
    assert (done.status, quorum["majority"], quorum["voters_source"]) == (1, 3, file.name)
    assert [one["node_id"] for one in quorum["voters"]] == [1, 2, 3, 4, 5]
    dynamic = corpus_dir / "quorum" / "dynamic-4.4" / "n1"
    [quorum] = rows(kafkalog("quorum", dynamic, "--properties", file, "-o", "ndjson"))["quorum"]
    assert [one["node_id"] for one in quorum["voters"]] == [1, 2, 3]
    file.write_text("controller.quorum.voters=here:1\n")
    assert kafkalog("quorum", *paths, "--properties", file).status == 2
    file.write_text("node.id=1\n")
    assert kafkalog("quorum", *paths, "--properties", file).status == 2


@contextmanager
def running(log_dir: Path) -> Iterator[None]:
    """Hold the lock of a log directory as a broker does: in another process."""
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(log_dir / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def test_a_running_broker_is_told(kafkalog: Run, killed: Path, tmp_path: Path) -> None:
    path = shutil.copytree(killed / "n1", tmp_path / "n1")
    with running(path):
        done = kafkalog("quorum", path, "-o", "ndjson")
    assert "a broker is running on" in done.stderr
    assert rows(done)["quorum_replica"][0]["states"] == ["newest", "running"]


def test_partition_directories_and_links_are_read_like_log_directories(
    kafkalog: Run, killed: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(killed / "n2")
    wanted = rows(kafkalog("quorum", killed / "n1", killed / "n2", "-o", "ndjson"))
    done = kafkalog("quorum", killed / "n1" / METADATA, tmp_path / "link", "-o", "ndjson")
    told = rows(done)
    assert done.status == 0
    assert told["quorum"] == wanted["quorum"]
    for row, like in zip(told["quorum_replica"], wanted["quorum_replica"], strict=True):
        assert row | {"path": None} == like | {"path": None}


def test_the_examples_of_the_help_run(
    kafkalog: Run, killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, node in (("controller1", 1), ("controller2", 2), ("broker11", 11)):
        shutil.copytree(killed / f"n{node}", tmp_path / name)
    (tmp_path / "server.properties").write_text("controller.quorum.voters=1@h:1\n")
    monkeypatch.chdir(tmp_path)
    text = all_commands()["quorum"].help
    examples = [line.split()[1:] for line in text.splitlines() if line.startswith("kafkalog ")]
    assert len(examples) == 5
    found = {" ".join(words): kafkalog(*words).status for words in examples}
    assert [*found.values()] == [0, 1, 0, 0, 0], found


def test_a_plan_is_shown_and_nothing_is_changed(
    kafkalog: Run, killed: Path, tmp_path: Path
) -> None:
    paths = [shutil.copytree(killed / f"n{node}", tmp_path / f"n{node}") for node in (1, 11)]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = kafkalog("quorum", *paths, "--standalone", "1@controller1:9093", "-o", "ndjson")
    told = rows(done)
    assert done.status == 0
    assert "29 offsets that are not proven to be committed" in done.stderr
    [plan] = told["quorum_rescue_summary"]
    assert (plan["to"], plan["changed"], plan["status"]) == (None, 0, 0)
    [voter] = plan["voters"]
    assert (voter["node_id"], voter["directory_id"]) == (1, None)
    assert (voter["listeners"], plan["end_offset"]) == (["CONTROLLER://controller1:9093"], 519)
    assert plan["source"] == str(paths[0] / METADATA)
    steps = told["quorum_step"]
    assert [one["step"] for one in steps] == [*range(1, 18)]
    assert "quorum_record" not in told
    text = kafkalog("quorum", *paths, "--standalone", "1@controller1:9093").stdout.decode()
    assert text.splitlines()[-5:] == [
        "OFFLINE  IN SYNC  HERE",
        "solo-0   12       -",
        "17 steps, 1 offline partition",
        "1 partition without a leader: no replica in sync was given",
        "Plan only: --to NEW makes the log directory of the controller",
    ]
    lines = kafkalog("quorum", *paths, "--standalone", "1", "-o", "csv").stdout.decode()
    assert len(lines.splitlines()) == 18
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_directory_is_made(kafkalog: Run, killed: Path, tmp_path: Path) -> None:
    """Its controller can be elected, and knows the metadata; another run does not replace it."""
    words = ("quorum", killed / "n11", "--standalone", "1@controller1:9093")
    to = tmp_path / "new"
    done = kafkalog(*words, "--to", to, "-o", "ndjson", "-n", "1")
    assert done.status == 0
    [made] = rows(done)["quorum_rescue_summary"]
    files = [path for path in to.rglob("*") if path.is_file()]
    assert (made["to"], made["changed"], made["status"]) == (str(to), len(files), 0)
    assert json.loads(done.stdout.splitlines()[-1])["type"] == "quorum_rescue_summary"
    lines = kafkalog("quorum", to).stdout.decode().splitlines()
    assert lines[4] == "1 of 1 voter here: 1 can be elected, no rescue is needed"
    known = kafkalog("metadata", killed / "n1", "-o", "ndjson").stdout.splitlines()
    again = kafkalog("metadata", to, "-o", "ndjson").stdout.splitlines()
    topics = [
        {json.loads(row)["topic"] for row in some if json.loads(row)["type"] == "metadata_topic"}
        for some in (known, again)
    ]
    assert topics[0] == topics[1]
    assert topics[0]
    before = {path: path.read_bytes() for path in files}
    assert kafkalog(*words, "--to", to).status == 4
    assert {path: path.read_bytes() for path in to.rglob("*") if path.is_file()} == before
    text = kafkalog(*words, "--to", tmp_path / "other").stdout.decode().splitlines()[-1]
    assert text == f"made {tmp_path / 'other'}, {len(files)} files: go on with step 6"


def test_nothing_is_made_without_a_copy_that_was_given(
    kafkalog: Run, killed: Path, tmp_path: Path
) -> None:
    """What cannot be read may be what counts; the plan without it is shown all the same."""
    other = shutil.copytree(killed / "n12", tmp_path / "n12")
    for log in (other / METADATA).glob("*.log"):
        log.unlink()
        log.mkdir()
    words = ("quorum", killed / "n11", other, "--standalone", "1@controller1:9093")
    assert kafkalog(*words).status == 8
    refused = kafkalog(*words, "--to", tmp_path / "new")
    assert refused.status == 4
    assert "Leave the unreadable copy out of PATH." in refused.stderr
    assert not (tmp_path / "new").exists()
    copy = shutil.copytree(killed / "n11", tmp_path / "n11")
    with running(copy):
        done = kafkalog("quorum", copy, *words[3:], "--to", tmp_path / "new")
    assert done.status == 4
    assert not [*tmp_path.glob("new*")]


def test_a_plan_that_is_not_needed_is_refused(kafkalog: Run, killed: Path) -> None:
    done = kafkalog("quorum", killed / "n1", killed / "n2", "--standalone", "1")
    assert (done.status, done.stdout) == (4, b"")
    assert "can elect a leader: 1, 2" in done.stderr
    for wrong in ("x", "1@host", "1@host:x", "-1", "1@host:0", "1@host:65536", "1@::1:9093"):
        assert kafkalog("quorum", killed / "n1", f"--standalone={wrong}").status == 2
    for wrong in ("1@a:1,1@b:1", "1@a:1,", ",", "1@a:1,2@b", "1@a:1 2@b:1"):
        assert kafkalog("quorum", killed / "n1", f"--voters={wrong}").status == 2
    both = kafkalog("quorum", killed / "n1", "--standalone", "1", "--voters", "1@a:1")
    assert (both.status, "exclude each other" in both.stderr) == (2, True)
    for alone in ("--to", killed / "new"), ("--allow-loss",):
        done = kafkalog("quorum", killed / "n1", *alone)
        assert (done.status, "requires --standalone or --voters" in done.stderr) == (2, True)


VOTERS = "1@127.0.0.1:28201,2@[::1]:28202,3@host3:28203"


def test_a_directory_is_made_for_controllers_that_moved(
    kafkalog: Run, killed: Path, tmp_path: Path
) -> None:
    """Its quorum has all of them; the next run has nothing to do."""
    paths, to = [killed / f"n{node}" for node in (1, 2, 3)], tmp_path / "new"
    done = kafkalog("quorum", *paths, "--voters", VOTERS, "--to", to)
    assert done.status == 0
    assert "still name the old endpoints" in done.stderr
    lines = done.stdout.decode().splitlines()
    line = "3 of 3 voters here: 1, 2, 3 could be elected where they listened before"
    assert line in lines
    assert lines[-1].endswith("go on with step 6")
    after = (to, *paths[1:])
    [quorum] = rows(kafkalog("quorum", *after, "-o", "ndjson"))["quorum"]
    assert [one["listeners"] for one in quorum["voters"]] == [
        ["CONTROLLER://127.0.0.1:28201"], ["CONTROLLER://::1:28202"], ["CONTROLLER://host3:28203"]
    ]  # fmt: skip
    assert (quorum["candidates"], quorum["log_end_offset"]) == ([1], 522)
    words = ("quorum", *after, "--voters", VOTERS, "--to", tmp_path / "again")
    text = kafkalog(*words)
    assert text.status == 0
    line = "nothing to do: these are the voters, and they can elect a leader"
    assert text.stdout.decode().splitlines()[-1] == line
    assert not [*tmp_path.glob("again*")]
    [plan] = rows(kafkalog(*words, "-o", "ndjson"))["quorum_rescue_summary"]
    assert (plan["to"], plan["changed"], plan["status"]) == (None, 0, 0)


def test_what_no_copy_has_undamaged_is_lost_only_if_it_may_be(
    kafkalog: Run, tmp_path: Path
) -> None:
    """The status is 1, and what is left is written."""
    batches = epoch_batches([(1, 40)])
    hurt = [flip(one, 8 * len(one) - 1) if n == 20 else one for n, one in enumerate(batches)]
    log_dir = write_copy(tmp_path, 1, hurt, epoch=1)
    words, to = ("quorum", log_dir, "--standalone", "1"), tmp_path / "new"
    refused = kafkalog(*words, "--to", to)
    assert (refused.status, "or --allow-loss" in refused.stderr) == (4, True)
    planned = kafkalog(*words, "--allow-loss", "-o", "ndjson")
    assert (planned.status, rows(planned)["quorum_rescue_summary"][0]["lost_offsets"]) == (1, 18)
    assert not to.exists()
    done = kafkalog(*words, "--allow-loss", "--to", to, "-o", "ndjson")
    [plan] = rows(done)["quorum_rescue_summary"]
    assert (done.status, plan["status"], plan["lost_offsets"], plan["to"]) == (1, 1, 18, str(to))
    assert "18 offsets from 22 on are lost" in done.stderr
    [quorum] = rows(kafkalog("quorum", to, "-o", "ndjson"))["quorum"]
    assert (quorum["log_end_offset"], quorum["candidates"]) == (25, [1])
    written = b"".join(path.read_bytes() for path in (to / METADATA).glob("*.log"))
    assert written.startswith(b"".join(batches[:20]))


def test_without_any_voter_nobody_is_said_to_be_missing(kafkalog: Run, tmp_path: Path) -> None:
    log_dir = write_copy(tmp_path, 11, [], epoch=0, voters=None)
    done = kafkalog("quorum", log_dir)
    assert done.status == 1
    assert "nothing here says who the voters are" in done.stdout.decode()


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """Log directories of a node with three partitions, whose only voter is lost; one is a stray."""
    root = write_node(tmp_path / "node")
    identify(next(root.glob("d*/orders-0")), uuid(77))
    state = root / "d1" / METADATA / "quorum-state"
    state.write_text(state.read_text().replace('"voterId":1', '"voterId":7'))
    return root


def test_what_becomes_of_partitions_is_in_the_plan(kafkalog: Run, broker: Path) -> None:
    """Strays, and partitions without a leader: after the steps, and in the summary."""
    words = ("quorum", broker / "d1", "--standalone", "7@host:9093")
    told = rows(done := kafkalog(*words, broker / "d2", "-o", "ndjson"))
    assert done.status == 0
    [stray] = told["quorum_stray"]
    size = sum(one.stat().st_size for one in Path(stray["path"]).iterdir())
    assert (stray["topic"], stray["partition"], stray["size_bytes"]) == ("orders", 0, size)
    assert "quorum_offline_partition" not in told
    [plan] = told["quorum_rescue_summary"]
    assert (plan["stray_partitions"], plan["stray_bytes"], plan["offline_partitions"]) == (
        1, size, 0,
    )  # fmt: skip
    lines = kafkalog(*words).stdout.decode().splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("OFFLINE"))
    missing = sorted(one.name for one in (broker / "d2").glob("*-?"))
    assert [line.split() for line in lines[at : at + 1 + len(missing)]] == [
        ["OFFLINE", "IN", "SYNC", "HERE"], *([name, "1", "-"] for name in missing)
    ]  # fmt: skip
    assert f"{len(missing)} partitions without a leader: no replica in sync was given" in lines
    table = kafkalog(*words, broker / "d2").stdout.decode()
    assert "1 partition of" in table
    assert "become strays: the log that counts lacks them" in table
    [plan] = rows(kafkalog(*words[:1], broker / "d1" / METADATA, *words[2:], "-o", "ndjson"))[
        "quorum_rescue_summary"
    ]
    assert (plan["stray_partitions"], plan["offline_partitions"]) == (None, None)


def test_a_partition_that_cannot_be_listed_does_not_stop_a_quorum(
    kafkalog: Run, broker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status says that it may be one more stray."""
    broken, list_partition = str(next(broker.glob("d*/payments-0"))), listings.list_partition

    def listed(path: str) -> Any:
        if path == broken:
            raise UnreadableError("Input/output error.", path=path)
        return list_partition(path)

    monkeypatch.setattr(listings, "list_partition", listed)
    words = ("quorum", broker / "d1", broker / "d2", "--standalone", "7@host:9093")
    done = kafkalog(*words, "--to", tmp_path / "new", "-o", "ndjson")
    assert (done.status, broken in done.stderr) == (8, True)
    assert rows(done)["quorum_rescue_summary"][0]["status"] == 8
    assert kafkalog("quorum", tmp_path / "new").status == 0
