"""One folder for hosts without Python and without network, packed as one file to copy there.

It holds the Python that makes it, the packages, and the libraries of the system that they need. Of
the host it uses a shell and the C library. Nothing is unpacked when it starts, so that it starts as
fast as an installed kafkalog. Beside it are the manual page, completions of shells, and licences.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isal import igzip

from docgen.manual import COMPLETIONS, MANUAL, write_share
from kafkalog_cli.version import commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).parents[1]
EXTRAS: Final = "data,kafka,schemas"
"""What it can do by default: not Spark, nor tables of lakes."""

_STDLIB: Final = Path(sysconfig.get_path("stdlib"))
_NUMBER: Final = _STDLIB.name
_PARTS_LEFT_OUT: Final = (
    "__pycache__", "config-*", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter",
    "turtledemo", "site-packages", "dist-packages",
)  # fmt: skip
_MODULES_LEFT_OUT: Final = (
    "_curses*", "_dbm*", "_gdbm*", "_test*", "_tkinter*", "nis*", "readline*", "xx*",
)  # fmt: skip
"""Nobody asks for them; the libraries of some have licences that would bind all of the folder."""
_PACKAGE_PARTS_LEFT_OUT: Final = ("tests", "include")

_GLIBC: Final = re.compile(
    r"(ld-linux.*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libnsl)\.so(\..*)?"
)
_GLIBC_VERSION: Final = re.compile(rb"GLIBC_2\.(\d+)")
_NEEDED: Final = re.compile(r"^\t(\S+) => (/\S+)", re.MULTILINE)
_LICENCE: Final = re.compile(r"licen[cs]e|copying|notice|authors", re.IGNORECASE)

_SAME_LICENCE: Final = {"grpcio-tools": "grpcio"}
"""Packages without a file of it, and the package of the same source that has one."""
_LICENCES: Final = Path(__file__).with_name("licences")
"""What the sources of packages have, and their wheels have not."""

_PROGRAM: Final = """\
#!/bin/sh
# Starts kafkalog with the Python and the libraries in this folder, whatever the host has.
here=$(readlink -f -- "$0") && here=${here%/*} || exit
LD_LIBRARY_PATH=$here/lib
export LD_LIBRARY_PATH
exec "$here/bin/python3" -I -B "$here/lib/kafkalog.py" "$@"
"""
_MAIN: Final = "from kafkalog_cli.main import main\n\nmain()\n"
_README: Final = """\
kafkalog {version} for Linux on {machine}, with all that it needs but a shell and the C library:
glibc {glibc} or newer. Put this folder anywhere, and link to the program in it:

    ln -s "$PWD/kafkalog" /usr/local/bin/kafkalog

{manual} is the manual page: man -l {manual}
Completions: {completions}
licences/ holds the licences of everything in here.
"""


def make_bundle(wheel: Path, to: Path, extras: str = EXTRAS) -> Path:
    """Make the folder from a wheel, and pack it; return the path of the folder.

    Args:
        wheel: the wheel of kafkalog, for this machine.
        to: the directory that gets the folder and the archive.
        extras: those of the package that it has.
    """
    folder = to / f"{'-'.join(wheel.name.split('-')[:2])}-linux-{platform.machine()}"
    shutil.rmtree(folder, ignore_errors=True)
    python = _copy_python(folder)
    site = _install(python, f"{wheel}[{extras}]" if extras else str(wheel))
    libraries = _copy_libraries(folder)
    (folder / "lib" / "kafkalog.py").write_text(_MAIN)
    program = folder / "kafkalog"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    # They are right whatever the times of the sources are, which copying changes.
    modules = folder / "lib" / _NUMBER
    subprocess.run(
        [python, "-I", "-m", "compileall", "-qqf", "--invalidation-mode", "unchecked-hash",
         modules, *([] if site.is_relative_to(modules) else [site])],
        check=False, env=_environment(folder),  # some packages have templates that are no Python
    )  # fmt: skip
    _write_licences(folder / "licences", site, libraries)
    write_share(folder)
    told = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    text = _README.format(
        version=told.stdout.strip(), machine=platform.machine(), glibc=glibc_needed(folder),
        manual=MANUAL, completions=", ".join(COMPLETIONS.values()),
    )  # fmt: skip
    (folder / "README.txt").write_text(text)
    _pack(folder, Path(f"{folder}.tar.gz"))
    return folder


def glibc_needed(folder: Path) -> str:
    """Return the oldest version of the C library that has what the code in a folder needs."""
    found = [0]
    for path in _native(folder):
        found += map(int, _GLIBC_VERSION.findall(path.read_bytes()))
    return f"2.{max(found)}"


def _copy_python(folder: Path) -> Path:
    """Copy this Python and its library into the folder; return the path of the copy."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python3"
    shutil.copy2(os.path.realpath(sys.executable), python)
    shutil.copytree(
        _STDLIB, folder / "lib" / _NUMBER,
        ignore=lambda directory, names: [
            *shutil.ignore_patterns(*_PARTS_LEFT_OUT)(directory, names),
            *(shutil.ignore_patterns(*_MODULES_LEFT_OUT)(directory, names)
              if Path(directory).name == "lib-dynload" else ()),
        ],
    )  # fmt: skip
    return python


def _install(python: Path, requirement: str) -> Path:
    """Install packages where this Python looks for them; return that directory."""
    code = "import site; print(site.getsitepackages()[-1])"
    told = subprocess.run(
        [python, "-I", "-B", "-c", code], check=True, capture_output=True, text=True,
        env=_environment(python.parents[1]),
    )  # fmt: skip
    site = Path(told.stdout.strip())
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", site,
         "--constraint", ROOT / "constraints.txt", requirement],
        check=True,
    )  # fmt: skip
    shutil.rmtree(site / "bin", ignore_errors=True)
    for directory in sorted(site.rglob("*")):
        if directory.name in _PACKAGE_PARTS_LEFT_OUT and directory.is_dir():
            shutil.rmtree(directory)
    return site


def _copy_libraries(folder: Path) -> set[Path]:
    """Copy the libraries of the system that code in the folder needs; return their paths."""
    found = set()
    for path in _native(folder):
        told = subprocess.run(["ldd", path], check=False, capture_output=True, text=True)
        for name, place in _NEEDED.findall(told.stdout):
            if not _GLIBC.fullmatch(name) and not Path(place).is_relative_to(folder):
                found.add(Path(place))
    for source in found:
        shutil.copy2(source, folder / "lib" / source.name)
    return found


def _native(folder: Path) -> Iterator[Path]:
    """Yield the programs and libraries in a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {"LD_LIBRARY_PATH": str(folder / "lib")}


def _write_licences(to: Path, site: Path, libraries: Iterable[Path]) -> None:
    """Copy the licences of Python, of packages and of libraries, a directory for each of them."""
    own = _STDLIB / "LICENSE.txt"
    _copy(to / "python", [own if own.exists() else _debian(_STDLIB / "os.py")])
    installed = {one.name: one for one in distributions(path=[str(site)])}
    for name in installed:
        one = installed[_SAME_LICENCE.get(name, name)]
        files = [
            file for file in one.files or ()
            if _LICENCE.match(file.name) and not file.suffix.startswith(".py")
        ]  # fmt: skip
        paths = [Path(str(one.locate_file(file))) for file in files]
        there = [path for path in paths if path.exists()]
        _copy(to / name, there or [*(_LICENCES / name).glob("*")])
    for path in libraries:
        if not path.is_relative_to(sys.base_prefix) or sys.base_prefix == "/usr":
            licence = _debian(path)
            _copy(to / licence.parent.name, [licence])


def _debian(path: Path) -> Path:
    """Return the licence of a file that belongs to a package of the system."""
    if shutil.which("dpkg") is None:
        raise SystemExit("Make it on Debian or Ubuntu, which know whose their libraries are.")
    for one in (path, path.resolve(), Path("/usr", *path.resolve().parts[1:])):
        told = subprocess.run(["dpkg", "-S", one], check=False, capture_output=True, text=True)
        if told.returncode == 0:
            return Path("/usr/share/doc", told.stdout.partition(":")[0], "copyright")
    raise SystemExit(f"The licence of {path} is unknown: no package of this system has it.")


def _copy(to: Path, licences: list[Path]) -> None:
    if not licences:
        raise SystemExit(f"{to.name} has no file with its licence.")
    to.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(licences):
        name = path.name if not (to / path.name).exists() else f"{number}-{path.name}"
        shutil.copyfile(path, to / name)


def _pack(folder: Path, path: Path) -> None:
    """Write an archive of a folder, with the time of the commit and no owner."""
    known = commit()
    time = 0 if known is None else known.time

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = time
        return member

    with (
        path.open("wb") as file,
        igzip.IGzipFile("", "wb", 3, file, time) as packed,  # type: ignore[no-untyped-call]
        tarfile.open(mode="w", fileobj=packed) as archive,
    ):
        archive.add(folder, folder.name, filter=plain)


def main() -> None:
    """Make the bundle, from a wheel of this checkout unless one is given."""
    parser = argparse.ArgumentParser(prog="python -m delivery.bundle", description=__doc__)
    parser.add_argument("--wheel", type=Path, help="the wheel; one is built if none is given")
    parser.add_argument("--extras", default=EXTRAS, help=f"what it can do ({EXTRAS})")
    parser.add_argument("--to", type=Path, default=Path("dist"), help="where it goes (dist)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        wheel = options.wheel
        if wheel is None:
            for left in (ROOT / "build").glob("lib*"):  # what was left there would be in it
                shutil.rmtree(left)
            subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation",
                            "--outdir", place, ROOT],
                           check=True, stdout=subprocess.DEVNULL)  # fmt: skip
            [wheel] = Path(place).glob("*.whl")
        folder = make_bundle(wheel.absolute(), options.to.absolute(), options.extras)
    size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
    packed = os.path.getsize(f"{folder}.tar.gz")
    print(f"{folder}: {size / 1e6:.0f} MB, for glibc {glibc_needed(folder)} or newer")
    print(f"{folder}.tar.gz: {packed / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
