"""The promise of the read commands: no byte, time or name is changed.

The proof is Python's own audit of what it opens and changes, and the files on disk before and
after; where strace is installed, the system calls of the same run are checked, too.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import copy_tree, flip
from tests.conftest import OF_KAFKA_4, SCENARIOS, STATES_28, Result
from tests.sampling import sampled
from tests.sweeps import command_lines

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Result]
TREES = [
    *("/".join(one) for one in OF_KAFKA_4),
    *(f"kafka-2.8/{name}" for name in STATES_28),
    *(f"lookup/{name}" for name in SCENARIOS),
    "recovery",
]
GROUPS = 8
"""Trees are read by few processes: each costs as much as reading a tree."""
THOROUGHLY = ("kafka-4.3/txn", "kafka-4.3/crash-1-torn", "kafka-4.3/interrupted-1-swap",
              "kafka-2.8/v1")  # fmt: skip

# Notes each event of Python's audit that could change something: opens are judged by their flags.
# Runs many command lines in one process and prints what it noted.
AUDIT = """
import json, os, sys
lines = json.load(sys.stdin)
noted, opened = [], []
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate",
           "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "os.lockf",
           "fcntl.flock", "fcntl.lockf", "shutil.move", "shutil.copyfile", "tempfile.mkstemp",
           "tempfile.mkdtemp", "os.mkfifo", "os.mknod", "subprocess.Popen", "os.system", "os.exec",
           "os.posix_spawn", "os.fork", "socket.connect", "socket.bind"}
def hook(event, arguments):
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, (str, bytes)):
            opened.append(os.fsdecode(path))
            if flags & WRITING:
                noted.append([event, os.fsdecode(path)])
    elif event in CHANGES:
        path = str(arguments[0])
        if event == "os.rename" and arguments[2] >= 0:  # in an open directory
            path = os.path.join(os.readlink(f"/proc/self/fd/{arguments[2]}"), path)
        noted.append([event, path])
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
os.write(out, json.dumps([noted, opened, statuses]).encode())
"""
# System calls that change something, and what strace shows of flags that do.
CALLS = ",".join((
    "open", "openat", "openat2", "creat", "rename", "renameat", "renameat2", "unlink", "unlinkat",
    "mkdir", "mkdirat", "rmdir", "link", "linkat", "symlink", "symlinkat", "truncate", "ftruncate",
    "fallocate", "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "utime",
    "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "removexattr",
    "lremovexattr", "fremovexattr", "mknod", "mknodat", "fcntl", "flock", "pwrite64", "pwritev",
))  # fmt: skip
HARMLESS = re.compile(r"O_RDONLY(?!.*O_(CREAT|TRUNC|APPEND))|F_(GET|DUP)|F_SETFD|F_SETFL")


@dataclass(frozen=True)
class Watched:
    """What a run of command lines did.

    `changes` are paths opened for writing or changed, `calls` the system calls that do so, or None
    without strace.
    """

    changes: list[tuple[str, str]]
    opened: list[str]
    statuses: list[int]
    calls: list[str] | None


def watch(
    lines: Iterable[list[str]], place: Path, script: str = AUDIT, inside: Iterable[str] = ()
) -> Watched:
    """Run the lines in a separate process, if wanted `inside` another program."""
    log = place / "strace.log"
    strace = where_strace_is()
    prefix = [] if strace is None else [strace, "-f", "-s", "4096", "-e", f"trace={CALLS}", "-o",
                                        str(log)]  # fmt: skip
    done = subprocess.run(
        [*prefix, *inside, sys.executable, "-B", "-c", script], input=json.dumps([*lines]),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    noted, opened, statuses = json.loads(done.stdout)
    calls = None
    if strace is not None:
        calls = changing_calls(log.read_text(errors="replace").splitlines())
    return Watched([(event, path) for event, path in noted], opened, statuses, calls)


def changing_calls(lines: Iterable[str]) -> list[str]:
    """Return what strace shows of calls that change something, without the ends of split lines."""
    calls = [line.split(None, 1)[1] for line in lines]
    calls = [call for call in calls if "(" in call and not call.startswith("<... ")]
    return [call for call in calls if not HARMLESS.search(call)]


def test_calls_that_strace_splits():
    """The end of one repeats no path, and tells nothing new."""
    lines = [
        '7 unlink("/log/x.tmp" <unfinished ...>',
        "8 +++ exited with 0 +++",
        "7 <... unlink resumed>)             = -1 ENOENT (No such file or directory)",
        '7 openat(AT_FDCWD, "/log/x", O_RDONLY|O_CLOEXEC) = 3',
    ]
    assert changing_calls(lines) == ['unlink("/log/x.tmp" <unfinished ...>']


def is_elsewhere(text: str, tree: Path) -> bool:
    """Return whether a call touches nothing in the tree, only the null device."""
    allowed = (os.devnull,)
    return str(tree) not in text and any(path in text for path in allowed)


def pictures(root: Path) -> dict[str, tuple[object, ...]]:
    """Return the stat result and bytes of each path below; access times are left out."""
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


def lines_for(root: Path, *, thoroughly: bool) -> list[list[str]]:
    """Return commands over the whole tree, and over one file of each kind."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        kinds.setdefault(path.name.rpartition(".")[2] or path.name, []).append(path)
    files = [path for paths in kinds.values() for path in paths[-1:]]
    partition = next(path.parent for path in sorted(root.rglob("*.log")) if path.stat().st_size)
    lines = command_lines(partition, [p for p in files if p.stat().st_size < 1 << 20])
    if not thoroughly:
        lines = lines[::5]
    for top in sorted({path.parent.parent for path in root.rglob("*.log")}):
        lines += [["ls", top], ["ls", "--files", top], ["ls", "--segments", top]]
        lines += [["verify", "--level", level, top] for level in ("quick", "deep")]
    lines.append(["kafka-dump-log", "--files", "/none.log"])
    return [[str(word) for word in line] for line in lines]


@pytest.fixture(params=range(GROUPS))
def trees(request: pytest.FixtureRequest, corpus_dir: Path, tmp_path: Path) -> list[Path]:
    """Copies of some trees of the corpus, each with one log damaged."""
    data = tmp_path / "data"
    names = sampled(TREES[request.param :: GROUPS], 2)
    return [damaged_copy(corpus_dir / name, data / name) for name in names]


def damaged_copy(origin: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    root = copy_tree(origin, target)
    path = max(root.rglob("*.log"), key=lambda p: (p.stat().st_size < 100_000, p.stat().st_size))
    status = path.stat()
    data = path.read_bytes()
    path.write_bytes(flip(data, 8 * min(70, len(data) - 1)))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return root


@pytest.mark.sampled(8)
def test_nothing_is_opened_for_writing_or_changed(trees: list[Path], tmp_path: Path):
    """Every tree of the corpus, checked in three ways: by audit, by system calls, by the disk."""
    data = tmp_path / "data"
    before = pictures(data)
    lines = {tree: lines_for(tree, thoroughly=str(tree).endswith(THOROUGHLY)) for tree in trees}
    done = watch([line for of_tree in lines.values() for line in of_tree], tmp_path)
    assert [change for change in done.changes if not is_elsewhere(change[1], data)] == []
    assert [call for call in done.calls or () if not is_elsewhere(call, data)] == []
    for tree, of_tree in lines.items():
        assert sum(path.startswith(f"{tree}/") for path in done.opened) > len(of_tree)
    assert len(done.statuses) == sum(map(len, lines.values()))
    assert set(done.statuses) <= {0, 1, 2, 3, 5, 6, 8}
    assert pictures(data) == before


@pytest.fixture
def small_tree(corpus_dir: Path, tmp_path: Path) -> Path:
    """Copy one of the trees."""
    return damaged_copy(corpus_dir / "kafka-4.3" / "txn", tmp_path / "data" / "txn")


def test_only_the_file_that_is_asked_for_is_written(small_tree: Path, tmp_path: Path):
    """`--to FILE` first writes to a temporary name in the same directory."""
    log = max(small_tree.rglob("*.log"), key=lambda path: path.stat().st_size)
    before = pictures(small_tree)
    out = tmp_path / "out"
    out.mkdir()
    lines = [["dump-segment", str(log), "--to", str(out / f"x.{form}")]
             for form in ("parquet", "arrow")]  # fmt: skip
    done = watch(lines, tmp_path)
    rest = [path for _, path in done.changes if not is_elsewhere(path, small_tree)]
    calls = [call for call in done.calls or () if not is_elsewhere(call, small_tree)]
    assert rest
    assert all(path.startswith(str(out)) for path in rest), rest
    assert all(str(out) in call for call in calls if not call.startswith("f")), calls
    assert sorted(os.listdir(out)) == ["x.arrow", "x.parquet"]
    assert pictures(small_tree) == before


def read_only(tree: Path) -> tuple[str, list[str]]:
    """Make a tree read-only for a process by the strongest means here; return means and prefix.

    A mount needs privileges that not every machine gives; modes do not bind root.
    """
    mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    for flags in ("-m", "-rm"):
        prefix = ["unshare", flags, "sh", "-c", mount, str(tree)]
        if shutil.which("unshare") and refuses_to_write(tree, prefix):
            return "mount", prefix
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    return "modes", []


def where_strace_is() -> str | None:
    """Return the path of strace; it may be missing on a desktop, but not in CI."""
    found = shutil.which("strace")
    assert found is not None or not os.environ.get("CI"), "strace is not installed"
    return found


def refuses_to_write(tree: Path, prefix: list[str]) -> bool:
    """Return whether a process with this prefix runs and cannot create a file in the tree."""
    ran = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    wrote = subprocess.run([*prefix, "touch", tree / "x"], capture_output=True, check=False)
    return ran.returncode == 0 and wrote.returncode != 0 and not (tree / "x").exists()


def test_a_read_only_tree_is_enough(small_tree: Path, tmp_path: Path):
    """The statuses are the same as with write permission: on a read-only mount, else with modes."""
    lines = lines_for(small_tree, thoroughly=False)
    wanted = watch(lines, tmp_path).statuses
    kind, prefix = read_only(small_tree)
    before = pictures(small_tree)
    if kind == "modes" and os.geteuid() != 0:
        assert refuses_to_write(small_tree, prefix)
    assert watch(lines, tmp_path, inside=prefix).statuses == wanted
    assert pictures(small_tree) == before
    for path in [small_tree, *small_tree.rglob("*")]:
        path.chmod(0o755)


def test_the_lock_of_a_running_broker_is_left_alone(
    tmp_path: Path, corpus_dir: Path, kafkalog: Run
):
    """Reading needs no lock, takes none, and does not wait for one."""
    root = copy_tree(corpus_dir / "kafka-4.3" / "crash-0-kill9", tmp_path / "tree")
    with (root / ".lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert kafkalog("verify", root).status == 0
        assert kafkalog("ls", root).status == 0
        assert kafkalog("dump-segment", root / ".lock").status == 0


def test_the_watch_sees_what_it_should_see(tmp_path: Path):
    """A command that writes is noticed: by the audit, by system calls, by the disk."""
    tree = tmp_path / "tree"
    tree.mkdir()
    before = pictures(tree)
    writing = f"open({str(tree / 'x')!r}, 'w').close()\nos.rename({str(tree / 'x')!r}, 'y')"
    spoiled = AUDIT.replace("statuses = []", f"os.chdir({str(tree)!r})\n{writing}\nstatuses = []")
    done = watch([], tmp_path, spoiled)
    changes: list[Any] = [event for event, path in done.changes if not is_elsewhere(path, tree)]
    assert changes == ["open", "os.rename"]
    if done.calls is not None:
        found = [call for call in done.calls if not is_elsewhere(call, tree)]
        assert [call.partition("(")[0] for call in found] == ["openat", "rename"]
    assert pictures(tree) != before
