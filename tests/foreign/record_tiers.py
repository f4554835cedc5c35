"""Records what Aiven's plugin uploads: `python -m tests.foreign.record_tiers CHECKOUT`.

CHECKOUT is a clone of Aiven-Open/tiered-storage-for-apache-kafka at the tag v1.0.0; its sources are
compiled, since no registry has them. A broker of Kafka 4.3 runs with the plugin, once per packing,
and its clients tell what they get (TieredBroker.java). What it leaves becomes
`tests/corpus/aiven/PACKING.tar.xz`, which `tests/kafkalog/test_plugin_tiers.py` reads.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.foreign.record import pack
from tests.kafka import broker_data
from tests.packed_tiers import new_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

POM: Final = Path(__file__).parent / "tier_plugin" / "pom.xml"
CORPUS: Final = Path(__file__).parents[1] / "corpus" / "aiven"
PACKINGS: Final = ("plain", "zstd", "sealed")
_PARTS: Final = ("core", "commons", "storage/core", "storage/filesystem")
_KEY: Final = "key-1"
_SECONDS_MAX: Final = 600


def compiled(checkout: Path, place: Path) -> str:
    """Compile the plugin; return its class path."""
    for part in _PARTS:
        shutil.copytree(checkout / part / "src/main", place / "src/main", dirs_exist_ok=True)
    shutil.copy(POM, place)
    subprocess.run(["mvn", "-q", "-B", "package"], cwd=place, check=True, timeout=_SECONDS_MAX)
    return f"{place}/target/*{os.pathsep}{place}/target/lib/*"


def properties(packing: str, root: Path, class_path: str) -> Iterator[tuple[str, object]]:
    """Yield what the broker is configured with beyond what `TieredBroker` says."""
    package = "io.aiven.kafka.tieredstorage"
    yield "remote.log.storage.manager.class.name", f"{package}.RemoteStorageManager"
    yield "remote.log.storage.manager.class.path", class_path
    chosen: dict[str, object] = {
        "storage.backend.class": f"{package}.storage.filesystem.FileSystemStorage",
        "storage.root": root / "bucket",
        "key.prefix": "of/cluster/",
        "chunk.size": 1000,
        "fetch.chunk.cache.class": f"{package}.fetch.cache.MemoryChunkCache",
        "fetch.chunk.cache.size": 1_000_000,
        "compression.enabled": str(packing != "plain").lower(),
    }
    if packing == "sealed":
        key = new_key(root, _KEY).public_key()
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        public = root / "public.pem"
        public.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        pairs = f"encryption.key.pairs.{_KEY}"
        chosen |= {
            "encryption.enabled": "true",
            "encryption.key.pair.id": _KEY,
            "encryption.key.pairs": _KEY,
            f"{pairs}.public.key.file": public,
            f"{pairs}.private.key.file": root / f"{_KEY}.pem",
        }
    for name, value in chosen.items():
        yield f"rsm.config.{name}", value


def record(packing: str, work: Path, class_path: str, seed: int) -> None:
    """Run a broker with the plugin, and put what it leaves into the corpus."""
    root = work / packing
    for name in ("bucket", "cwd"):
        (root / name).mkdir(parents=True)
    lines = [f"{name}={value}\n" for name, value in properties(packing, root, class_path)]
    (root / "plugin.properties").write_text("".join(lines))
    words = ("kafkalog.harness.TieredBroker", str(root), str(seed), str(root / "plugin.properties"))
    broker_data.java(*words, cwd=root / "cwd")
    for name in ("cwd", "plugin.properties", "public.pem", "server.properties"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    pack(root, CORPUS / f"{packing}.tar.xz", packing)


def main(argv: Sequence[str] | None = None) -> None:
    """Record all packings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    broker_data.build()
    with tempfile.TemporaryDirectory() as top:
        class_path = compiled(arguments.checkout, Path(top) / "plugin")
        for packing in PACKINGS:
            record(packing, Path(top), class_path, arguments.seed)


if __name__ == "__main__":
    main()
