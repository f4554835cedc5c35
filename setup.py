"""Builds the kernels as a step of building the package; everything else is in pyproject.toml."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from typing import Any

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from kafkalog.jit import library

PLACE = os.path.join("kafkalog", "jit")
LEVELS = library.LEVELS.get(platform.machine(), ())


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
            self.warn(f"there are no kernels for {platform.machine()}: large logs are read slowly")
        elif not self.editable_mode or not library.is_current():
            library.build(self._place())

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


class PlatformWheel(bdist_wheel):
    """A wheel for one kind of machine, and for every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return Python, ABI and platform: the kernels use nothing of Python's."""
        *_, place = super().get_tag()
        return "py3", "none", place


class Kafkalog(Distribution):
    """The package, which has native code if there are kernels for this kind of machine."""

    def has_ext_modules(self) -> bool:
        """Return whether it is for one kind of machine."""
        return bool(LEVELS)


COMMANDS: dict[str, Any] = {
    "build": Build, "build_kernels": BuildKernels, "bdist_wheel": PlatformWheel
}  # fmt: skip

setup(
    distclass=Kafkalog, cmdclass=COMMANDS, setup_requires=[] if shutil.which("cc") else ["ziglang"]
)
