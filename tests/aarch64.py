"""The kernels of aarch64, built and run in an emulator with Debian's Python for that processor.

`python -m tests.aarch64` runs what runs every kernel. It needs Debian's `qemu-user-static` and
`debootstrap`, and root, which debootstrap asks for. What it makes is in `build/aarch64`, where the
next run finds the Python, its packages and, for the same sources, the kernels; in `wheel` there is
the wheel for that processor.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

from kafkalog.io.jit import library
from tests.groups import ROOT, kernel_suites
from tests.sampling import TIER_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

PLACE = ROOT / "build" / "aarch64"
DEBIAN = PLACE / "debian"
VENV = PLACE / "venv"
PYTHON = VENV / "bin" / "python"
ZIG = PLACE / "zig"
SOURCES = PLACE / "sources"
WHEEL = PLACE / "wheel"
INSTALLED = PLACE / "installed"

_TOOLS = {"qemu-aarch64-static": "qemu-user-static", "debootstrap": "debootstrap", "git": "git"}
"""What it calls, and the package of Debian that has it."""
_TESTS_NEED = (
    "fastavro", "hypothesis", "polars", "pyarrow", "pytest", "pytest-xdist", "setuptools",
    "zstandard",
)  # fmt: skip
_PIP = (sys.executable, "-m", "pip")
_INSTALL = (
    "install", "--quiet", "--no-compile", "--only-binary", ":all:", "--constraint",
    "constraints.txt",
)  # fmt: skip


def run(*words: object, cwd: Path = ROOT, **more: str) -> None:
    """Run a command, and leave with its status if it fails."""
    status = subprocess.run([*map(str, words)], cwd=cwd, env=os.environ | more, check=False)
    if status.returncode:
        print(f"aarch64: status {status.returncode} of {shlex.join(map(str, words))}", flush=True)
        raise SystemExit(1)


def unpack_debian() -> None:
    """Unpack Debian's Python and the libraries that it needs; none of it is set up."""
    if DEBIAN.exists():
        return
    packages, unpacked = PLACE / "packages", PLACE / "unpacked"
    run("debootstrap", "--download-only", "--arch=arm64", "--variant=minbase", "--include=python3",
        "bookworm", packages)  # fmt: skip
    for path in packages.glob("var/cache/apt/archives/*.deb"):
        run("dpkg-deb", "--extract", path, unpacked)
    unpacked.rename(DEBIAN)
    shutil.rmtree(packages)


def make_python() -> None:
    """Make a virtual environment whose Python is a script that starts the emulator.

    So Python can start itself too, which the kernel of this machine could not. The emulator starts
    Debian's dynamic loader: with `qemu -L` Python would see Debian's root directory in place of
    this machine's.
    """
    libraries = ":".join(f"{DEBIAN}/{one}/aarch64-linux-gnu" for one in ("lib", "usr/lib"))
    emulated = shlex.join(["qemu-aarch64-static", f"{DEBIAN}/lib/ld-linux-aarch64.so.1"])
    python = f"--library-path {shlex.quote(libraries)} {shlex.quote(f'{DEBIAN}/usr/bin/python3')}"
    PYTHON.parent.mkdir(parents=True, exist_ok=True)
    PYTHON.write_text(f'#!/bin/sh\nexec {emulated} --argv0 "$0" {python} "$@"\n')
    PYTHON.chmod(0o755)
    (VENV / "pyvenv.cfg").write_text(f"home = {DEBIAN}/usr/bin\n")


def install_packages() -> None:
    """Install what kafkalog and its tests need, and here a linker for that processor."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], library.NUMBA, *_TESTS_NEED]
    state = "\n".join([*wanted, (ROOT / "constraints.txt").read_text(encoding="utf-8")])
    installed = VENV / "installed.txt"
    if installed.exists() and installed.read_text(encoding="utf-8") == state:
        return
    run(*_PIP, "--python", PYTHON, *_INSTALL, *wanted)
    run(*_PIP, *_INSTALL, "--upgrade", "--target", ZIG, "ziglang")
    installed.write_text(state, encoding="utf-8")


def copy_sources() -> None:
    """Copy this checkout as it is: its own kernels are built in place, and are of this machine."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    line = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (SOURCES / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, SOURCES / name)


def build_kernels() -> None:
    """Build the kernels in the copy, or take those of an earlier run from the same sources."""
    [level] = library.LEVELS["aarch64"]
    name = library.library_file(level)
    kept, made = PLACE / name, SOURCES / "kafkalog" / "io" / "jit" / name
    if kept.exists() and library.digest().encode() in kept.read_bytes():
        shutil.copy2(kept, made)
        return
    compiler = shlex.join([str(ZIG / "ziglang" / "zig"), "cc", "-target", "aarch64-linux-gnu"])
    run(PYTHON, "-m", "kafkalog.io.jit.library", cwd=SOURCES, CC=compiler)
    shutil.copy2(made, kept)


def make_wheel() -> None:
    """Make the wheel with those kernels; installed, it prints here what it prints there."""
    for made in (WHEEL, INSTALLED):
        shutil.rmtree(made, ignore_errors=True)
    run(PYTHON, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", WHEEL, cwd=SOURCES)
    [wheel] = WHEEL.glob("*-py3-none-manylinux_2_17_aarch64.whl")
    run(*_PIP, *_INSTALL, "--no-deps", "--platform", "manylinux_2_17_aarch64", "--target",
        INSTALLED, wheel)  # fmt: skip
    call = (
        "import sys; from kafkalog.io.jit import library; library.loaded(); "
        "sys.argv[0] = 'kafkalog'; from kafkalog_cli.main import main; main()"
    )
    for words in (["verify", "damaged"], ["dump-segment", "log-dir/orders-0", "-o", "ndjson"]):
        there, here = (
            subprocess.run(
                [python, "-c", call, *words], check=False, capture_output=True,
                cwd=ROOT / "examples", env=os.environ | {"PYTHONPATH": str(place)},
            )
            for python, place in ((PYTHON, INSTALLED), (sys.executable, ROOT))
        )  # fmt: skip
        assert here.stdout, here.stderr
        assert (there.returncode, there.stdout) == (here.returncode, here.stdout), there.stderr


def main() -> int:
    """Set all up, and run the tests: the sample of `make test`, since an emulator is slow."""
    missing = sorted({of for tool, of in _TOOLS.items() if shutil.which(tool) is None})
    if missing:
        print(f"aarch64: nothing was run, since {' and '.join(missing)} of Debian are missing.")
        return 1
    PLACE.mkdir(parents=True, exist_ok=True)
    unpack_debian()
    make_python()
    install_packages()
    copy_sources()
    build_kernels()
    make_wheel()
    line = [PYTHON, "-m", "pytest", "-n", "auto", "--durations=10", *kernel_suites()]
    return subprocess.run(
        line, cwd=SOURCES, env=os.environ | {TIER_VARIABLE: ""}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
