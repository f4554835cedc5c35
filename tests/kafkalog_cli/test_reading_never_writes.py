"""The charter of the read commands: not a byte, not a time, not a name is changed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.builders import copy_tree, flip
from tests.conftest import Result
from tests.sweeps import command_lines

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Result]
STATES = ["kafka-4.3/txn", "kafka-4.3/crash-1-torn", "kafka-4.3/interrupted-1-swap",
          "kafka-2.8/v1"]  # fmt: skip

# Notes each event of Python's audit that could change something below the tree; opens are judged
# by their flags. Runs many command lines in one process and prints what it noted.
AUDIT = """
import json, os, sys
tree, lines = sys.argv[1], json.load(sys.stdin)
noted = []
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate",
           "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "os.lockf",
           "fcntl.flock", "fcntl.lockf", "shutil.move", "shutil.copyfile", "tempfile.mkstemp",
           "tempfile.mkdtemp", "os.mkfifo", "os.mknod"}
def hook(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, (str, bytes)) and os.fsdecode(path).startswith(tree):
            if flags & WRITING:
                noted.append([event, repr(arguments)])
            opened.append(os.fsdecode(path))
    elif event in CHANGES or event in ("subprocess.Popen", "os.system", "socket.connect"):
        noted.append([event, repr(arguments)])
opened = []
from kafkalog_cli.main import run
out = os.dup(1)
null = os.open(os.devnull, os.O_WRONLY)
os.dup2(null, 1)
os.dup2(null, 2)
sys.addaudithook(hook)
statuses = []
for line in lines:
    statuses.append(run(line))
    sys.stdout.flush()
os.write(out, json.dumps([noted, len(opened), statuses]).encode())
"""


def pictures(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything stat and the bytes say, for each name below; access times are the reader's."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        content = ""
        if path.is_file() and status.st_blocks * 512 < 1 << 20:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path)] = (
            status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            status.st_nlink, status.st_blocks, content,
        )  # fmt: skip
    return found


def lines_for(root: Path) -> list[list[str]]:
    """Commands over the whole tree, and over one file of each kind."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        kinds.setdefault(path.name.rpartition(".")[2] or path.name, []).append(path)
    files = [path for paths in kinds.values() for path in paths[-1:]]
    partition = next(path.parent for path in sorted(root.rglob("*.log")) if path.stat().st_size)
    lines = command_lines(partition, [p for p in files if p.stat().st_size < 1 << 20])
    lines += [["verify", root], ["ls", root], ["ls", "--files", root], ["ls", "--segments", root]]
    lines += [["verify", "--level", "quick", root], ["kafka-dump-log", "--files", "/none.log"]]
    return [[str(word) for word in line] for line in lines]


@pytest.fixture(params=STATES, ids=[name.rpartition("/")[2] for name in STATES])
def tree(request: pytest.FixtureRequest, corpus_dir: Path, tmp_path: Path) -> Path:
    """A copy of a whole log directory, with one file damaged."""
    root = copy_tree(corpus_dir / request.param, tmp_path / "tree")
    path = max(root.rglob("*.log"), key=lambda p: (p.stat().st_size < 100_000, p.stat().st_size))
    status = path.stat()
    path.write_bytes(flip(path.read_bytes(), 8 * 70))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return root


def test_nothing_is_opened_for_writing_or_changed(tree: Path):
    """Judged twice: by Python's audit events, and by what is on the disk before and after."""
    before = pictures(tree)
    lines = lines_for(tree)
    done = subprocess.run(
        [sys.executable, "-B", "-c", AUDIT, str(tree)],
        input=json.dumps(lines), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    noted, opened, statuses = json.loads(done.stdout)
    assert noted == []
    assert opened > len(lines)
    assert len(statuses) == len(lines)
    assert set(statuses) <= {0, 1, 2, 3, 5, 6}
    assert pictures(tree) == before


def test_a_tree_without_write_permissions_is_enough(tree: Path, kafkalog: Run):
    """The same statuses as with them; root ignores modes, the modes themselves must stay."""
    lines = lines_for(tree)[::7]
    wanted = [kafkalog(*line).status for line in lines]
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = pictures(tree)
    assert [kafkalog(*line).status for line in lines] == wanted
    assert pictures(tree) == before
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o755)


def test_the_lock_of_a_running_broker_is_left_alone(
    tmp_path: Path, corpus_dir: Path, kafkalog: Run
):
    """Reading needs no lock, takes none, and does not wait for one."""
    import fcntl

    root = copy_tree(corpus_dir / "kafka-4.3" / "crash-0-kill9", tmp_path / "tree")
    with (root / ".lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert kafkalog("verify", root).status == 0
        assert kafkalog("ls", root).status == 0
        assert kafkalog("dump-segment", root / ".lock").status == 0


def test_the_audit_sees_what_it_should_see(tmp_path: Path):
    """A command that did write would be noted."""
    (tmp_path / "00000000000000000000.log").touch()
    spoiled = AUDIT.replace(
        "sys.addaudithook(hook)",
        "sys.addaudithook(hook)\nopen(tree + '/x', 'w').close()\n"
        "os.rename(tree + '/x', tree + '/y')",
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", spoiled, str(tmp_path)],
        input="[]", capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert [event for event, _ in json.loads(done.stdout)[0]] == ["open", "os.rename"]
