"""Take a release's facts into the tables of `formats/`, and print what it changes.

    python -m releases 4.4.0 --before 4.3.0

Releases that kafkalog still predicts besides the newest are `KEPT`.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from releases import KEPT, tables
from releases.definitions import offered, read_definitions
from releases.jars import facts_of, followed_classes, jars_of, methods_of, strings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from releases.definitions import Definition

_READABLE = 20
"""Of a class with more methods, most of which changed, the methods are not listed."""
ROOT = Path(__file__).resolve().parents[1]
FORMATS = ROOT / "formats"


def main() -> None:
    """Write the tables and print the changes."""
    parser = argparse.ArgumentParser(prog="make kafka", description=__doc__)
    parser.add_argument("release", help="of which the tables are, 4.5.0 say")
    parser.add_argument("--before", default=KEPT[0], help="release with which it is compared")
    given = parser.parse_args()
    for change in [*write(given.release), *_code(given.before, given.release)]:
        print(change)


def write(release: str) -> Iterator[str]:
    """Write the tables of a release, 4.4.0 say; yield their changes as a unified diff."""
    short = release.rpartition(".")[0]
    facts = {one.rpartition(".")[0]: facts_of(one) for one in (release, *KEPT)}
    definitions = _definitions(release)
    entries = tables.write_messages(definitions)
    for kept in KEPT:
        older = tables.differences(entries, tables.write_messages(_definitions(kept)))
        yield from _put(f"messages-{kept.rpartition('.')[0]}.txt", "\n".join(older), release)
    yield from _put("messages.txt", tables.join_messages("", entries), release)
    apis = dict.fromkeys(re.findall(r"(?m)^(\w+) +\d+ request", _text("requests.txt")))
    requests = tables.write_requests(definitions["kafka-clients"], [*apis])
    yield from _put("requests.txt", "\n".join(requests), release)
    yield from _put("features.txt", "\n".join(tables.write_features(facts)), release)
    yield from _put("configs.txt", "\n".join(tables.write_configs(facts)), release)
    module = FORMATS / "error_codes.py"
    before = module.read_text()
    module.write_text(tables.write_error_codes(before, facts[short]))
    yield from _changes(module.name, before, module.read_text())


def _definitions(release: str) -> dict[str, dict[str, Definition]]:
    """Return the definitions that brokers of a release offer, by jar and name."""
    jars = {jar.name.removesuffix(f"-{release}.jar"): jar for jar in jars_of(release)}
    return {
        name: offered(read_definitions([jar]))
        for name, jar in jars.items()
        if name.startswith("kafka-")
    }


def _text(name: str) -> str:
    path = FORMATS / name
    return path.read_text("utf-8") if path.exists() else ""


def _put(name: str, body: str, release: str) -> Iterator[str]:
    """Write a table below the comment that it begins with; yield what changes."""
    before = _text(name)
    head = re.match(r"(?:#.*\n)*", before)
    named = re.sub(r"(of Apache Kafka) \d+\.\d+\.\d+", rf"\1 {release}", head[0] if head else "")
    after = f"{named}\n{body.strip()}\n"
    (FORMATS / name).write_text(after, "utf-8")
    yield from _changes(name, before, after)


def _changes(name: str, before: str, after: str) -> Iterator[str]:
    yield from difflib.unified_diff(
        before.splitlines(), after.splitlines(), name, name, lineterm="", n=0
    )


def _code(before: str, after: str) -> Iterator[str]:
    """Yield the methods of the classes that kafkalog follows whose instructions changed."""
    names = followed_classes(
        source for folder in ("formats", "kafkalog") for source in (ROOT / folder).rglob("*.py")
    )
    old, new = methods_of(before, names), methods_of(after, names)
    equal = {name for name in old.keys() & new.keys() if old[name] == new[name]}
    same, all_old = Counter(map(_owner, equal)), Counter(map(_owner, old))
    rewritten = {one for one, count in all_old.items() if 2 * same[one] < count > _READABLE}
    yield from (
        f"rewritten {one}: {same[one]} of {all_old[one]} methods as before"
        for one in sorted(rewritten)
    )
    for name in sorted(old.keys() | new.keys()):
        is_made = "lambda$" in name or "$anonfun$" in name
        if name in equal or is_made or _owner(name) in rewritten:
            continue
        state = "gone" if name not in new else "new" if name not in old else "changed"
        yield f"{state:<8} {name}"
        texts = strings_of(old.get(name, "")) ^ strings_of(new.get(name, ""))
        if state == "changed":
            yield from (f"           {text[:100]}" for text in sorted(texts))


def _owner(method: str) -> str:
    return method.partition(":")[0].partition("$")[0]


if __name__ == "__main__":
    main()
