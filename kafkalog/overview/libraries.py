"""The libraries that draw the page, from the packages that bring them, and their licences.

Vega, Vega-Lite and Vega-Embed come with `vl-convert-python`, DataTables with `itables`.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kafkalog.errors import UnsupportedError
from kafkalog.jit.cache import cache_directory, keep, read_kept
from kafkalog.overview.html import escaped

_GLOBALS: Final = "window.vegaEmbed = vegaEmbed;"
_DIGEST_SIZE: Final = 32


def require() -> None:
    """Check that the libraries are there.

    Raises:
        UnsupportedError: one is missing.
    """
    for name in ("vl_convert", "itables"):
        if find_spec(name) is None:
            raise _missing(name)


def _missing(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"Reports need {name.replace('vl_convert', 'vl-convert-python')}, which is not installed.",
        hint="pip install 'kafkalog[report]'",
    )


@cache
def vega() -> str:
    """Return a script that defines `vegaEmbed`.

    Making it takes more than a second, so it is kept with its checksum, like the kernels.
    """
    if find_spec("vl_convert") is None:
        raise _missing("vl_convert")
    directory = cache_directory()
    made_from = f"{version('vl-convert-python')} {_GLOBALS}".encode()
    path = os.path.join(directory or "", f"vega-{sha256(made_from).hexdigest()[:16]}.js")
    kept = None if directory is None else read_kept(path)
    digest, script = (kept or b"")[:_DIGEST_SIZE], (kept or b"")[_DIGEST_SIZE:]
    if digest != sha256(script).digest():
        import vl_convert

        script = vl_convert.javascript_bundle(_GLOBALS).encode()
        if directory is not None:
            keep(path, sha256(script).digest() + script)
    return _contained(script.decode())


@cache
def datatables() -> str:
    """Return a module that defines `DataTable`."""
    found = find_spec("itables")  # the module itself imports more than is needed here
    if found is None or not found.submodule_search_locations:
        raise _missing("itables")
    place = Path(found.submodule_search_locations[0], "html", "dt_bundle.js")
    module, exports, rest = place.read_text(encoding="utf-8").rpartition("export{")
    names, _, licence = rest.partition("}")
    [table] = [one.split(" as ")[0] for one in names.split(",") if one.endswith(" as default")]
    assert exports, "it is a module"
    return _contained(f"{module}window.DataTable={table}{licence}")


def _contained(script: str) -> str:
    """Return a script that does not end its element early: the escapes that HTML recommends.

    They mean the same in strings and regular expressions, the only places where these occur.
    """
    for word in ("<!--", "<script", "</script"):
        script = script.replace(word, f"\\x3C{word[1:]}")
    return script


def licences() -> str:
    """Return the licences of what the page contains, folded."""
    text = files("kafkalog.overview").joinpath("licences.txt").read_text(encoding="utf-8")
    return f"<details><summary>Licences</summary><pre>{escaped(text)}</pre></details>"
