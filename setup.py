"""Builds kernels, manual pages and completions with the package; the rest is in pyproject.toml.

The same commit gives the same bytes: files have its time, no owner, and one mode.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from kafkalog.errors import UnsupportedError
from kafkalog.io.jit import library
from kafkalog_cli import version

PLACE = os.path.join("kafkalog", "io", "jit")
LEVELS = library.levels_to_build()
COMMIT = version.commit()
COMMIT_FILE = os.path.join("kafkalog_cli", version.COMMIT_FILE)
FILE_MODE = 0o644

if COMMIT is not None:
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(COMMIT.time))  # what archives say of times
os.umask(0o022)


def write_commit(root: str) -> None:
    """Write which commit this is, if that is known, into a tree of the packages."""
    if COMMIT is not None:
        path = os.path.join(root, COMMIT_FILE)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(COMMIT.text())


class Sources(sdist):
    """The archive of the sources, with the commit."""

    def make_release_tree(self, base_dir: str, files: Any) -> None:
        """Copy the files, and add the commit."""
        super().make_release_tree(base_dir, files)
        write_commit(base_dir)

    def make_archive(self, base_name: Any, kind: str, **more: Any) -> str:
        """Write a `.tar.gz` of the files in order, with one time and no owner."""
        if kind != "gztar":
            return super().make_archive(base_name, kind, **more)
        time = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))

        def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = time
            member.mode = FILE_MODE if member.isfile() else 0o755
            return member

        path = f"{base_name}.tar.gz"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", 9, file, time) as packed,
            tarfile.open(mode="w", fileobj=packed) as archive,
        ):
            archive.add(more["base_dir"], filter=plain)  # sorts the names
        return path


class BuildPackages(build_py):
    """The packages, with the commit."""

    def run(self) -> None:
        """Copy them, and add the commit."""
        super().run()
        if not self.editable_mode:
            write_commit(self.build_lib)


class BuildKernels(Command):
    """Compile and link the kernels: into the build, or in place for an editable install."""

    description = "compile and link the kernels"
    user_options = ()
    editable_mode = False

    def initialize_options(self) -> None:
        """Begin with no directory."""
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        """Take the directory of the build."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Build them, unless they are those of these sources."""
        if not LEVELS:
            self.warn("it gets no kernels: large logs are read slowly")
        elif not library.is_current():
            try:
                library.build(self._place())
            except UnsupportedError as error:
                raise SystemExit(
                    "\n".join(filter(None, (str(error), error.note, error.hint)))
                ) from error
        elif not self.editable_mode:
            self.mkpath(self._place())
            for made in self.get_outputs():
                shutil.copy(os.path.join(PLACE, os.path.basename(made)), made)

    def _place(self) -> str:
        return PLACE if self.editable_mode else os.path.join(str(self.build_lib), PLACE)

    def get_outputs(self) -> list[str]:
        """Return what it makes."""
        return [os.path.join(self._place(), library.library_file(level)) for level in LEVELS]

    def get_output_mapping(self) -> dict[str, str]:
        """Return which outputs are copies of sources: none."""
        return {}

    def get_source_files(self) -> list[str]:
        """Return which sources only this step needs: none."""
        return []


class Build(build):
    """The build with the kernels."""

    sub_commands = (*build.sub_commands, ("build_kernels", None))

    def run(self) -> None:
        """Build, and give all files one mode."""
        super().run()
        for directory, _, names in os.walk(self.build_lib):
            for name in names:
                os.chmod(os.path.join(directory, name), FILE_MODE)


class InstallShare(Command):
    """The manual pages and the completions of shells, made by the command line itself."""

    description = "write manual pages and completions"
    user_options = ()

    def initialize_options(self) -> None:
        """Begin with no directory."""
        self.install_dir: str | None = None

    def finalize_options(self) -> None:
        """Take the directory that `share` is in."""
        self.set_undefined_options("install", ("install_data", "install_dir"))

    def run(self) -> None:
        """Write them."""
        from docgen.manual import write_share  # an editable install needs none of what it imports

        write_share(Path(str(self.install_dir)))

    def get_outputs(self) -> list[str]:
        """Return what it made."""
        return [str(path) for path in Path(str(self.install_dir)).rglob("*") if path.is_file()]


class PlatformWheel(bdist_wheel):
    """A wheel for one kind of machine, and for every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return Python, ABI and platform: the kernels use `memcpy` and `memset` of any glibc."""
        *_, place = super().get_tag()
        return "py3", "none", place.replace("linux_", "manylinux_2_17_", 1)


class Kafkalog(Distribution):
    """The package, which has native code if there are kernels for this kind of machine."""

    def has_ext_modules(self) -> bool:
        """Return whether it is for one kind of machine."""
        return bool(LEVELS)

    def has_data_files(self) -> bool:
        """Return whether there is something to install apart from the packages."""
        return True


COMMANDS: dict[str, Any] = {
    "build": Build, "build_kernels": BuildKernels, "build_py": BuildPackages,
    "bdist_wheel": PlatformWheel, "install_data": InstallShare, "sdist": Sources,
}  # fmt: skip

setup(distclass=Kafkalog, cmdclass=COMMANDS)
