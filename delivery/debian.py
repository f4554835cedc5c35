"""A package for Debian and Ubuntu, from the folder that `delivery.bundle` makes.

The folder becomes /usr/lib/kafkalog; links put the program, the manual and the completions where
the system looks for them. Nothing runs when it is installed or removed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from delivery.bundle import glibc_needed
from kafkalog_cli.version import commit

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_PLACE: Final = Path("usr/lib/kafkalog")
_ZSH: Final = "zsh/site-functions", "zsh/vendor-completions"
"""Where zsh looks, and where Debian's does."""
_CONTROL: Final = """\
Package: kafkalog
Version: {version}
Architecture: {architecture}
Maintainer: kafkalog <https://github.com/kafkalog/kafkalog/issues>
Installed-Size: {kilobytes}
Depends: libc6 (>= {glibc})
Section: admin
Priority: optional
Homepage: https://github.com/kafkalog/kafkalog
Description: inspect, verify, repair and export Apache Kafka's log files
 Works on a broker's disk, without a broker and without Java. Reading never
 writes. It has a Python of its own, and the packages that it uses.
"""
_COPYRIGHT: Final = f"/{_PLACE}/licences has the licences of kafkalog and of all that it uses.\n"


def make_package(folder: Path, to: Path) -> Path:
    """Make the package, and return its path.

    Args:
        folder: the bundle.
        to: the directory that gets the package.
    """
    _, version, system = folder.name.split("-", 2)
    architecture = _ARCHITECTURES[system.removeprefix("linux-")]
    package = to / f"kafkalog_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        root = Path(place)
        root.chmod(0o755)
        # Links to the same files: a copy would take as much room again.
        shutil.copytree(folder, root / _PLACE, symlinks=True, copy_function=os.link)
        _link(root, Path("usr/bin/kafkalog"), _PLACE / "kafkalog")
        for path in sorted((folder / "share").rglob("*")):
            if path.is_file():
                inside = path.relative_to(folder)
                _link(root, Path("usr", str(inside).replace(*_ZSH)), _PLACE / inside)
        about = root / "usr/share/doc/kafkalog/copyright"
        about.parent.mkdir(parents=True)
        about.write_text(_COPYRIGHT)
        size = sum(path.lstat().st_size for path in root.rglob("*"))
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN" / "control").write_text(_CONTROL.format(
            version=version, architecture=architecture, kilobytes=size >> 10,
            glibc=glibc_needed(folder),
        ))  # fmt: skip
        known = commit()
        time = "0" if known is None else str(known.time)
        subprocess.run(
            ["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", root, package],
            check=True, env=os.environ | {"SOURCE_DATE_EPOCH": time}, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return package


def _link(root: Path, link: Path, target: Path) -> None:
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(os.path.relpath(target, link.parent))


def main() -> None:
    """Make the package of a bundle."""
    parser = argparse.ArgumentParser(prog="python -m delivery.debian", description=__doc__)
    parser.add_argument("folder", type=Path, help="the bundle")
    parser.add_argument("--to", type=Path, default=Path("dist"), help="where it goes (dist)")
    options = parser.parse_args()
    package = make_package(options.folder.absolute(), options.to.absolute())
    print(f"{package}: {package.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
