"""An Iceberg table in a catalog of AWS Glue, as moto plays it, with its files in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moto.core import DEFAULT_ACCOUNT_ID
from moto.glue.models import glue_backends
from pyarrow import fs

from tests.kafkalog.lake.catalogs import require_growth
from tests.stores import BUCKET, KEY, SECRET, running_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

REGION = "eu-central-1"


def test_glue(tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    """As in the guide: each service of AWS has an endpoint, a region and credentials."""
    with running_store() as store:
        own = {"region": REGION, "access-key-id": KEY, "secret-access-key": SECRET}
        own["endpoint"] = f"http://{store.endpoint}"
        properties = {f"{one}.{key}": own[key] for one in ("glue", "s3") for key in own}
        properties |= {"type": "glue", "warehouse": f"s3://{BUCKET}/lake"}

        def count_files() -> int:
            within = fs.FileSelector(f"{BUCKET}/lake", recursive=True)
            return sum(one.path.endswith(".parquet") for one in store.files.get_file_info(within))

        try:
            require_growth(kafkalog, tmp_path / "log", properties, count_files)
        finally:
            glue_backends[DEFAULT_ACCOUNT_ID][REGION].reset()
            store.files.delete_dir_contents(BUCKET)
