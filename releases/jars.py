"""A release's jars: fetched by Maven, asked by Java, compared class by class."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
_CLASSES_AT_ONCE = 200


def jars_of(release: str) -> list[Path]:
    """Return the jars of a release and of what it needs; Maven fetches those that are not there."""
    folder = HERE / "target" / release
    if not folder.is_dir():
        pom = HERE / "pom.xml"
        subprocess.run(["mvn", "-q", "-f", pom, f"-Dkafka={release}", "package"], check=True)
    return sorted(folder.glob("*.jar"))


def facts_of(release: str) -> dict[str, Any]:
    """Return what `Facts.java` prints of a release."""
    command = ["java", "-cp", _class_path(release), str(HERE / "Facts.java")]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    facts: dict[str, Any] = json.loads(printed)
    return facts


def _class_path(release: str) -> str:
    return ":".join(map(str, jars_of(release)))


def followed_classes(sources: Iterable[Path]) -> set[str]:
    """Return the simple names of the classes that modules say they follow."""
    names = set()
    for text in (source.read_text() for source in sources):
        for words in re.findall(r"Follows(.*?)of\s+(?:Apache\s+)?Kafka", text, re.DOTALL):
            names |= set(re.findall(r"`(?:[a-z0-9]+\.)*([A-Z]\w+)", words))
    return names


def methods_of(release: str, names: set[str]) -> dict[str, str]:
    """Return the instructions of the methods of classes, by class and method, without packages."""
    paths = []
    for jar in jars_of(release):
        if jar.name.endswith(f"-{release}.jar"):
            with zipfile.ZipFile(jar) as archive:
                for one in archive.namelist():
                    simple = one.rpartition("/")[2].removesuffix(".class").split("$")[0]
                    if one.endswith(".class") and simple in names:
                        paths.append(f"jar:file:{jar}!/{one}")
    methods: dict[str, str] = {}
    for at in range(0, len(paths), _CLASSES_AT_ONCE):
        command = ["javap", "-p", "-c", *paths[at : at + _CLASSES_AT_ONCE]]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for text in re.split(r"(?m)^(?=Compiled from )", _normal(printed))[1:]:
            head, *bodies = text.split("\n\n")
            owner = re.sub(r"(?s).*?\b(?:class|interface) ([\w$]+).*", r"\1", head)
            for body in bodies:
                name = body.strip().partition("\n")[0].rstrip(";")
                methods[f"{owner}: {name}"] = body
    return methods


def _normal(text: str) -> str:
    """Return listings without what differs between equal sources: numbers, places, packages."""
    text = re.sub(r"(?:[\w$]+[/.])+(?=[\w$])", "", text)
    text = re.sub(r"#\d+(?:, *\d+)?|(?m:^ *\d+: )|\$\d+\b|#.*?(?=//)", "", text)
    text = re.sub(r"\b(ldc|goto)_w\b|\b(ldc)2_w\b", r"\1\2", text)
    text = re.sub(r"(?m)(^ *(?:if\w*|goto|jsr) +)\d+$", r"\1", text)
    text = re.sub(r"(?m) +$|^ +\d+ +\d+ +\d+ .*$|^ +-?\w+: \d+$", "", text)
    return re.sub(r" {2,}", " ", text)


def strings_of(text: str) -> set[str]:
    """Return the texts that instructions load."""
    return {one.strip() for one in re.findall(r"// String (.*)", text)}
