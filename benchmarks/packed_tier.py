"""A partition in remote storage: `python -m benchmarks.packed_tier PARTITION TIER PACKED`.

Its segments as Kafka's `LocalTieredStorage` uploads them, and as Aiven's plugin packs them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.packed_tiers import Packing, pack, uploaded

CHUNK_SIZE = 4 << 20
"""As the plugin's documentation configures it."""

if __name__ == "__main__":
    partition, tier, packed = map(Path, sys.argv[1:])
    pack(uploaded(partition, tier), packed, Packing(CHUNK_SIZE, compression=True))
