"""Spark next to a working broker: batch reads, and two streams."""

from __future__ import annotations

import json
import time
import zlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from kafkalog.model import Record
from kafkalog.node.reader import read_records
from kafkalog.spark import KafkaLogDataSource
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.kafka.test_living_broker import LivingBroker

Copied = dict[str, dict[int, int]]
"""The checksum of a value by topic and offset."""

WHOLE: Final = ("steady", "ledger")
"""Topics that keep all records."""
COMPACTED: Final = ("compacted", "transactional")
CUT: Final = ("retained", "trimmed")
"""Topics that lose their first records."""
RESTING_S: Final = 20.0
"""So long a stream that is started again and again rests: each start costs seconds."""


class SparkReads:
    """Reads of a working broker's log directory.

    The stream of the topics that lose no records is restarted again and again from its checkpoint:
    any loss would be an error. The stream of all topics keeps running, and gets what is left of
    those that lose records.

    Args:
        spark: the session.
        broker: the broker whose logs are read.
        place: a directory for what the streams write.
    """

    def __init__(self, spark: SparkSession, broker: LivingBroker, place: Path) -> None:
        spark.dataSource.register(KafkaLogDataSource)
        self._spark = spark
        self._broker = broker
        self._place = place
        self._everything = self._follow_everything()
        self._went_on_s = 0.0
        self._looked_at: set[str] = set()

    def batches(self) -> None:
        """Read batches: every record of topics that lose none, and what is left of the others."""
        before = self._broker.watermark("steady")
        heads = self._heads(",".join((*WHOLE, *COMPACTED)))
        after = self._broker.watermark("steady")
        offsets = [offset for offset, _ in heads.get("steady", [])]
        assert offsets == list(range(len(offsets)))
        assert before is None or before <= len(offsets)
        assert before is None or after is None or len(offsets) <= after
        heads |= self._heads(",".join(CUT), failOnDataLoss="false")
        for topic in ("steady", "compacted", *CUT):
            rows = heads.get(topic, [])
            assert rows == [(offset, str(offset)) for offset, _ in rows], topic
        for topic in ("ledger", "transactional"):
            assert {head for _, head in heads.get(topic, [])} <= {"committed"}

    def go_on(self) -> None:
        """Continue the lossless stream now and then; restart the other if Spark was too slow."""
        if time.monotonic() - self._went_on_s > RESTING_S:
            patiently(self._follow_kept)
            self._went_on_s = time.monotonic()
        error = self._everything.exception()
        if error is not None and is_starting_slowly(error):
            self._everything = self._follow_everything()
        else:
            assert error is None, error
            assert self._everything.isActive

    def meet_a_passing_topic(self) -> None:
        """Go on until the stream of all topics has read one that the broker deletes soon."""

        def has_one() -> bool:
            self.go_on()
            return any(map(_is_passing, self._new_topics()))

        until(has_one, pause_s=1.0)

    def require_complete(self) -> None:
        """Compare what the streams wrote with the consumer's and the logs of the stopped broker."""
        patiently(self._follow_kept)
        patiently(self._follow_everything_to_the_end)
        kept, everything = self._copied("kept"), self._copied("everything")
        assert set(kept) == {*WHOLE, *COMPACTED}
        for topic in WHOLE:
            consumed = checksums(self._broker.consumed(topic))
            assert kept[topic] == consumed, topic
            assert everything[topic] == consumed, topic
        for topic in (*COMPACTED, *CUT):
            left = self._left(topic)
            consumed = checksums(self._broker.consumed(topic))
            for copy in (kept, everything) if topic in COMPACTED else (everything,):
                # All that is there in the end; and what was cleaned or deleted since it was read.
                assert {offset: copy[topic][offset] for offset in left} == left, topic
                assert all(copy[topic].get(offset, one) == one for offset, one in consumed.items())
        assert any(map(_is_passing, everything))

    def _new_topics(self) -> Iterator[str]:
        """Yield the topics in files that the stream of all topics has committed since last time."""
        for log in sorted((self._place / "everything" / "copy" / "_spark_metadata").glob("[0-9]*")):
            _, *entries = log.read_text().splitlines()
            for path in {unquote(urlsplit(json.loads(one)["path"]).path) for one in entries}:
                if path not in self._looked_at:
                    self._looked_at.add(path)
                    yield from pq.read_table(path, columns=["topic"])["topic"].unique().to_pylist()

    def _follow_kept(self) -> None:
        stream = self._stream("kept", {"subscribe": ",".join((*WHOLE, *COMPACTED))})
        stream.trigger(availableNow=True).start(self._copy("kept")).awaitTermination()

    def _follow_everything(self) -> StreamingQuery:
        stream = self._stream("everything", {"failOnDataLoss": "false"})
        query = stream.trigger(processingTime="5 seconds").start(self._copy("everything"))
        assert isinstance(query, StreamingQuery)
        return query

    def _follow_everything_to_the_end(self) -> None:
        if not self._everything.isActive:
            self._everything = self._follow_everything()
        self._everything.processAllAvailable()
        self._everything.stop()

    def _stream(self, name: str, options: dict[str, str]) -> Any:
        reader = self._spark.readStream.format("kafkalog").options(
            isolation="read_committed", columns="topic,offset,value", **options
        )
        return (
            reader.load(str(self._broker.log_dir))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self._place / name / "checkpoint"))
        )

    def _copy(self, name: str) -> str:
        return str(self._place / name / "copy")

    def _heads(self, topics: str, **options: str) -> dict[str, list[tuple[int, str]]]:
        """Return offset and first word of each record, by topic."""
        frame = self._spark.read.format("kafkalog").options(
            subscribe=topics, isolation="read_committed", decode="text",
            columns="topic,offset,value", **options,
        ).load(str(self._broker.log_dir))  # fmt: skip
        found: dict[str, list[tuple[int, str]]] = {}
        for row in rows_of(
            frame.selectExpr("topic", "offset", "substring_index(value, ' ', 1) word")
        ):
            found.setdefault(row["topic"], []).append((row["offset"], row["word"]))
        for rows in found.values():
            rows.sort()
            assert len({offset for offset, _ in rows}) == len(rows)
        return found

    def _copied(self, name: str) -> Copied:
        """Return what a stream wrote, each record once; a topic made again has offsets again."""
        frame = self._spark.read.parquet(self._copy(name)).where("topic <> 'again'")
        found: Copied = {}
        rows = frame.selectExpr("topic", "offset", "crc32(value) checksum").toLocalIterator()
        for row in rows:  # part by part: the result of an hour is larger than the driver takes
            of_topic = found.setdefault(row["topic"], {})
            assert row["offset"] not in of_topic, row
            of_topic[row["offset"]] = row["checksum"]
        return found

    def _left(self, topic: str) -> dict[int, int]:
        """Return which of the consumed records of a topic the broker still has on disk."""
        consumed = self._broker.consumed(topic)
        records = read_records(self._broker.log_dir / f"{topic}-0")
        offsets = {one.offset for one in records if isinstance(one, Record)}
        return checksums({offset: one for offset, one in consumed.items() if offset in offsets})


def _is_passing(topic: str) -> bool:
    return topic.startswith("passing-")


def patiently(work: Callable[[], object]) -> None:
    """Retry until a loaded machine lets Spark start a worker: its limit cannot be configured."""
    over = time.monotonic() + HANG_S
    while True:
        try:
            work()
        except StreamingQueryException as error:
            if not is_starting_slowly(error) or time.monotonic() > over:
                raise
        else:
            return


def is_starting_slowly(error: StreamingQueryException) -> bool:
    """Return whether a Python worker took longer to start than Spark's limit of ten seconds."""
    return "Python worker failed to connect back" in str(error)


def checksums(values: dict[int, bytes]) -> dict[int, int]:
    return {offset: zlib.crc32(value) for offset, value in values.items()}


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows
