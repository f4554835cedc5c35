"""The bundle runs where there is no Python, as the installed command does."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from delivery.bundle import glibc_needed
from delivery.debian import make_package
from docgen.manual import COMPLETIONS, MANUAL
from tests.builders import batch, record, write_log
from tests.delivery.conftest import ROOT, TIME
from tests.kafkalog.change.lake.exporting import files_of
from tests.sampling import sampled, tries_everything
from tests.spark.cluster import standalone_cluster
from tests.spark.driver import SMALL, start_driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = f"kafkalog-{version('kafkalog')}-linux-{platform.machine()}"
INSTALLED = Path(sys.executable).with_name("kafkalog")
PROGRAM = Path("/usr/local/bin/kafkalog")
LINES = [
    "--help",
    "ls {data}/log-dir --exact",
    "dump-segment {data}/log-dir/orders-0 --format ndjson",
    "dump-segment {data}/large/t-0 --format ndjson",
    "kafka-dump-log --deep-iteration --print-data-log --files {data}/large/t-0/{first}.log",
    "lookup-offset {data}/log-dir/orders-0 --timestamp 2024-01-01T00:04:20Z",
    "explain",
    "verify {data}/damaged",
    "dump-segment {data}/nowhere",
]
WITH_EXTRAS = [
    "export {data}/log-dir --to {data}/lake --topic orders",
    "sql -c 'SELECT count(*) FROM records' {data}/log-dir",
    "profile {data}/log-dir",
]


@dataclass
class Host:
    """A host without Python.

    Attributes:
        root: its root directory.
        data: logs, at the same path inside and outside of it.
        lines: what is called.
    """

    root: Path
    data: Path
    lines: list[str]

    def call(self, line: str) -> list[subprocess.CompletedProcess[bytes]]:
        """Call kafkalog there, among settings for another Python, then the installed one here."""
        words = shlex.split(line.format(data=self.data, first="0" * 20))
        inside = ["chroot", self.root, "/usr/bin/env", "-i", "COLUMNS=80", "PYTHONHOME=/nowhere",
                  "PYTHONPATH=/nowhere", PROGRAM]  # fmt: skip
        if tries_everything():
            inside = ["unshare", "--net", *inside]
        outside = ["/usr/bin/env", "-i", "COLUMNS=80", INSTALLED]
        return [
            subprocess.run([*start, *words], check=False, capture_output=True)
            for start in (inside, outside)
        ]


@pytest.fixture(scope="module")
def bundle(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, unpacked from the archive: without extras, but in `make test-all`."""
    place = tmp_path_factory.mktemp("bundle")
    extras = [] if tries_everything() else ["--extras", ""]
    line = [sys.executable, "-m", "delivery.bundle", "--wheel", wheel, "--to", place, *extras]
    subprocess.run(line, check=True, cwd=ROOT)
    shutil.rmtree(place / NAME)
    (place / "unpacked").mkdir()
    unpack = ["tar", "-xzf", place / f"{NAME}.tar.gz", "-C", place / "unpacked"]
    subprocess.run(unpack, check=True)
    return place / "unpacked" / NAME


@pytest.fixture(scope="module")
def host(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A bare Debian in `make test-all`; else a shell, two small programs and the C library."""
    root = tmp_path_factory.mktemp("host")
    if tries_everything():
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        subprocess.run(["mount", "--bind", "/proc", root / "proc"], check=True)
    else:
        smallest_root(root)
    assert not [*root.glob("usr/bin/python*"), *root.glob("usr/lib/python*")]
    shutil.copytree(bundle, root / "opt" / "kafkalog", symlinks=True, copy_function=os.link)
    (root / str(PROGRAM)[1:]).parent.mkdir(parents=True, exist_ok=True)
    (root / str(PROGRAM)[1:]).symlink_to("/opt/kafkalog/kafkalog")
    data = tmp_path_factory.mktemp("data")
    for name in ("log-dir", "damaged"):
        shutil.copytree(ROOT / "examples" / name, data / name)
    large_log(data / "large" / "t-0")
    shutil.copytree(data, root / str(data)[1:])
    yield Host(root, data, [*sampled(LINES, 2), *(WITH_EXTRAS if tries_everything() else [])])
    if tries_everything():
        subprocess.run(["umount", root / "proc"], check=True)


def smallest_root(root: Path) -> None:
    """Make a root directory with what the bundle asks of a host."""
    programs = [Path(str(shutil.which(name))) for name in ("sh", "readlink", "env")]
    told = subprocess.run(["ldd", *programs], check=True, capture_output=True, text=True)
    libraries = {Path(path) for path in re.findall(r"/lib\S+", told.stdout)}
    more = ["libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"]
    [library] = {one.parent for one in libraries if one.name == "libc.so.6"}
    for path in (*programs, *libraries, *(library / name for name in more)):
        (root / str(path)[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, root / str(path)[1:])
        (root / str(path)[1:]).chmod(0o755)
    (root / "bin").mkdir(exist_ok=True)
    if not (root / "bin" / "sh").exists():
        (root / "bin" / "sh").symlink_to("/usr/bin/sh")
    (root / "proc").mkdir()
    shutil.copyfile("/proc/cpuinfo", root / "proc" / "cpuinfo")


def large_log(directory: Path) -> None:
    """Write a megabyte of records, which kernels read."""
    write_log(
        directory,
        *(batch(10 * number, [record(i, b"key", b"v" * 90) for i in range(10)])
          for number in range(1000)),
    )  # fmt: skip


def test_it_does_what_the_installed_command_does(host: Host):
    """Same status and same bytes, with the same notes on standard error."""
    for line in host.lines:
        inside, here = host.call(line)
        assert inside.returncode == here.returncode, (line, inside.stderr.decode())
        assert inside.stdout == here.stdout, line
        assert inside.stderr == here.stderr, line
        assert inside.stdout or inside.stderr, line


def test_it_tells_the_commit_of_its_wheel(host: Host):
    """Which is that of the checkout it was built in."""
    inside, _ = host.call("--version")
    [stated] = host.root.glob("opt/kafkalog/lib/python3*/*/kafkalog_cli/commit.txt")
    name, committed = stated.read_text().split()
    assert inside.stdout.decode() == f"{version('kafkalog')} ({name})\n"
    assert int(committed) == TIME


def test_it_carries_licences_manual_and_completions(bundle: Path):
    """Of each package and each library of the system, and of Python."""
    names = {path.name.lower() for path in (bundle / "licences").iterdir()}
    assert {"python", "kafkalog", "numpy", "typer", "backports.zstd", "lz4"} <= names
    assert any(name.startswith("libssl") for name in names)
    assert any(name.startswith("libstdc++") for name in names)
    for path in (bundle / "licences").iterdir():
        assert sum(one.stat().st_size for one in path.iterdir()) > 400, path
    libraries = {path.name for path in bundle.rglob("*.so*")}
    assert not [one for one in libraries if re.match(r"libreadline|libgdbm|libc\.so", one)]
    for path in (MANUAL, *COMPLETIONS.values()):
        assert (bundle / path).stat().st_size > 100
    assert f"glibc {glibc_needed(bundle)}" in (bundle / "README.txt").read_text()


@pytest.mark.thorough("tests/delivery/test_bundle.py::test_it_does_what_the_installed_command_does")
def test_a_package_of_debian_comes_and_goes(bundle: Path, tmp_path: Path):
    """What is installed runs from any directory; after a purge nothing is left of it."""
    package = make_package(bundle, tmp_path)
    root = tmp_path / "root"
    smallest_root(root)
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "var/lib/dpkg/updates").mkdir()
    (root / "var/lib/dpkg/status").touch()
    before = {path for path in root.rglob("*") if "dpkg" not in path.parts}
    # That root directory has a C library, and no package of it.
    dpkg = ["dpkg", f"--root={root}", "--force-depends", f"--log={tmp_path / 'log'}"]
    subprocess.run([*dpkg, "--install", package], check=True, capture_output=True)
    told = subprocess.run(["chroot", root, "/usr/bin/kafkalog", "--version"], check=True,
                          capture_output=True, text=True)  # fmt: skip
    assert told.stdout.startswith(f"{version('kafkalog')} (")
    for path in (MANUAL, COMPLETIONS["bash"], "share/zsh/vendor-completions/_kafkalog",
                 "share/doc/kafkalog/copyright"):  # fmt: skip
        assert (root / "usr" / path).stat().st_size > 50
    subprocess.run([*dpkg, "--purge", "kafkalog"], check=True, capture_output=True)
    assert {path for path in root.rglob("*") if "dpkg" not in path.parts} == before


@pytest.mark.thorough("tests/delivery/test_bundle.py::test_it_does_what_the_installed_command_does")
def test_workers_of_spark_run_from_its_archive(bundle: Path, tmp_path: Path):
    """They have no kafkalog; the driver plans queries of the data source from the folder."""
    (tmp_path / "home" / "kafkalog").mkdir(parents=True)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "home" / "kafkalog" / NAME).symlink_to(bundle)
    archive, folder = bundle.parents[1] / f"{NAME}.tar.gz", f"./kafkalog/{NAME}"
    log_dir, lake = str(ROOT / "examples" / "log-dir"), tmp_path / "lake"
    with standalone_cluster(tmp_path / "cluster", has_kafkalog=False) as cluster:
        conf = {
            **cluster.conf,
            "spark.archives": f"{archive}#kafkalog",
            "spark.pyspark.python": f"{folder}/bin/python3",
            "spark.executorEnv.LD_LIBRARY_PATH": f"{folder}/lib",
        }
        rows, counts = start_driver(
            tmp_path / "tmp", cwd=tmp_path / "home", master=cluster.master, conf=conf,
            export=[log_dir, str(lake)], read=log_dir,
        ).results()  # fmt: skip
    kafkalog.export(log_dir, to=tmp_path / "here", request=SMALL).apply()
    assert files_of(lake) == files_of(tmp_path / "here")
    assert sum(count for _, count in counts) == rows == 1096


def test_it_runs_in_an_image_without_a_shell(bundle: Path, tmp_path: Path):
    """As the container file sets it up."""
    recipe = (ROOT / "delivery" / "Containerfile").read_text()
    smallest_root(tmp_path)
    shutil.copytree(bundle, tmp_path / "opt/kafkalog", symlinks=True, copy_function=os.link)
    (tmp_path / "opt/kafkalog/kafkalog").unlink()
    [written] = re.findall(r"^RUN (.*)", recipe, re.MULTILINE)
    subprocess.run(["chroot", tmp_path, "/bin/sh", "-c", written], check=True)
    (tmp_path / "opt/kafkalog/kafkalog").chmod(0o755)
    [settings] = re.findall(r"^ENV (.*)", recipe, re.MULTILINE)
    for name in ("sh", "readlink", "env"):
        (tmp_path / str(shutil.which(name))[1:]).unlink()
    told = subprocess.run(
        [str(shutil.which("chroot")), tmp_path, "/opt/kafkalog/kafkalog", "--version"],
        check=True, capture_output=True, text=True,
        env=dict(one.split("=") for one in settings.split()),
    )  # fmt: skip
    assert told.stdout.startswith(f"{version('kafkalog')} (")


def test_its_modules_are_compiled_whatever_happens_to_their_times(bundle: Path):
    """Else each start compiles them again, for nothing is written into the folder."""
    compiled = [*bundle.rglob("*.pyc")]
    assert len(compiled) > 500
    unchecked = (0b01).to_bytes(4, "little")  # as PEP 552 has it
    assert not [path for path in compiled if path.read_bytes()[4:8] != unchecked]


@pytest.mark.thorough("tests/delivery/test_bundle.py::test_it_does_what_the_installed_command_does")
def test_how_long_it_takes_to_start(bundle: Path, tell: Callable[[str], None], tmp_path: Path):
    """The best of many runs in turn, against the installed command; told, not judged."""
    large_log(tmp_path / "t-0")
    for words in (["--help"], ["dump-segment", tmp_path / "t-0"],
                  ["lookup-offset", ROOT / "examples/log-dir/orders-0", "500"]):  # fmt: skip
        runs = [(seconds([bundle / "kafkalog", *words]), seconds([INSTALLED, *words]))
                for _ in range(15)]  # fmt: skip
        ours, theirs = map(min, zip(*runs, strict=True))
        tell(f"{words[0]}: {ours * 1000:.0f} ms, installed {theirs * 1000:.0f} ms")


def seconds(line: list[Any]) -> float:
    """Return how long a command takes."""
    started = time.perf_counter()
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
    return time.perf_counter() - started
