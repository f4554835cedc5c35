"""Building kernels: what it asks for, and what it says where it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.io.jit import library
from tests.builders import batch, record, write_log
from tests.delivery.conftest import ROOT, checkout

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT = {library.WITHOUT_KERNELS: "1"}
HAS_KERNELS = pytest.mark.skipif(not library.levels(), reason="this machine has no kernels")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout without kernels."""
    place = tmp_path_factory.mktemp("kernels") / "sources"
    checkout(place)
    return place


@pytest.fixture(scope="module")
def other_numba(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A release of numba that lacks what the compiler of the kernels uses: how Python finds it."""
    place = tmp_path_factory.mktemp("numba")
    (place / "numba").mkdir()
    (place / "numba" / "__init__.py").touch()
    (place / "numba-0.99.1.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: numba\nVersion: 0.99.1\n"
    (place / "numba-0.99.1.dist-info" / "METADATA").write_text(metadata)
    return {"PYTHONPATH": str(place)}


def call(sources: Path, hook: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Call a function of the build backend, as pip does, and print what it returns."""
    known = {name: value for name, value in os.environ.items() if name not in {"CC", *WITHOUT}}
    code = f"import sys; sys.path.insert(0, 'delivery'); import backend; print(backend.{hook})"
    return subprocess.run([sys.executable, "-c", code], cwd=sources, check=False,
                          capture_output=True, text=True, env=known | settings)  # fmt: skip


def answer(sources: Path, hook: str, **settings: str) -> str:
    """Return what a function of the build backend returns."""
    done = call(sources, hook, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def project() -> dict[str, Any]:
    """Return what pyproject.toml says of the project."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@HAS_KERNELS
@pytest.mark.parametrize("what", ["wheel", "editable"])
def test_a_compiler_is_asked_for_if_there_are_kernels_to_compile(what: str, sources: Path):
    """With a linker where the system has none; a wheel needs what its manual is written with."""
    hook = f"get_requires_for_build_{what}()"
    compiler = {"CC": "cc"}
    own = project()["dependencies"] if what == "wheel" else []
    assert answer(sources, hook, **compiler) == str([library.NUMBA, *own])
    assert answer(sources, hook, PATH="/nowhere") == str([library.NUMBA, "ziglang", *own])
    assert answer(sources, hook, **WITHOUT) == str(own)
    copied = [shutil.copy(path, sources / "kafkalog" / "io" / "jit")
              for path in (ROOT / "kafkalog" / "io" / "jit").glob("*.so")]  # fmt: skip
    assert answer(sources, hook, **compiler) == str(own)
    for path in copied:
        os.remove(path)


def test_sources_and_metadata_need_no_compiler(
    sources: Path, tmp_path: Path, other_numba: dict[str, str]
):
    """Nothing is compiled for them: it would fail here."""
    assert answer(sources, "get_requires_for_build_sdist()") == "[]"
    for hook in ("build_sdist", "prepare_metadata_for_build_wheel",
                 "prepare_metadata_for_build_editable"):  # fmt: skip
        made = answer(sources, f"{hook}({str(tmp_path)!r})", **other_numba)
        assert (tmp_path / made).exists()


@HAS_KERNELS
def test_an_unknown_numba_is_named_with_what_to_do(
    sources: Path, tmp_path: Path, other_numba: dict[str, str]
):
    """It is used below its public surface, so that a new release may lack a name."""
    done = call(sources, f"build_wheel({str(tmp_path)!r})", **other_numba)
    assert done.returncode != 0
    [refused, known, hint] = done.stderr.splitlines()[-3:]
    assert refused.startswith("The kernels cannot be compiled with numba 0.99.1 and llvmlite ")
    assert library.NUMBA in known
    assert f"{library.WITHOUT_KERNELS}=1" in hint
    assert not [*tmp_path.iterdir()]


def test_pip_keeps_to_the_known_numbas():
    """Those that a build asks for are those of a developer."""
    assert library.NUMBA in project()["optional-dependencies"]["dev"]


def test_the_package_works_without_kernels(
    sources: Path, tmp_path: Path, other_numba: dict[str, str]
):
    """A wheel of its own for every machine; one note says that the slower decoder reads."""
    name = answer(sources, f"build_wheel({str(tmp_path)!r})", **other_numba, **WITHOUT)
    assert name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(tmp_path / name) as members:
        assert not [one for one in members.namelist() if one.endswith(".so")]
        members.extractall(tmp_path / "unpacked")
    write_log(
        tmp_path / "t-0",
        *(batch(i, [record(0, None, b"v" * 1000)]) for i in range(300)),
    )
    code = "from kafkalog_cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "dump-segment", tmp_path / "t-0", "--format", "ndjson"],
        check=True, capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "unpacked")},
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 300
    assert done.stderr.count("the compiled decoder cannot be used") == 1
