"""Which tables there are besides those of logs, and what a reader of tables is given."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from formats.late_classes import dataclass
from kafkalog.log.defects import Tolerant
from kafkalog.model import End, Isolation, LogView, Replicas
from kafkalog.tables.model import Bounds, Request, TableName, usual_replicas

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.errors import Listener


class StateTable(StrEnum):
    """The tables of what the internal topics add up to."""

    GROUPS = "groups"
    COMMITS = "commits"
    TOPICS = "topics"
    CONFIGS = "configs"


def _nothing() -> None:
    """Let reading go on."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Some logs, and how their tables are read.

    Attributes:
        paths: log directories, partition directories, or single logs.
        topics: these topics only; None for all.
        isolation: for records: those that consumers of this isolation level get.
        end: where records end: at the high watermark, or at the end of the log.
        replicas: how several copies of a partition are handled; None for the usual way.
        internal: whether internal topics of brokers are wanted, too.
        view: what of a partition directory is shown.
        text: whether keys and values are text; invalid UTF-8 becomes U+FFFD.
        disorder_ms: no record is older than the newest before it by more than this, so that
            reading ends soon after a time range; None if that is not known.
        threads: number of decoding threads; None for one per processor, up to 8.
        listener: as for `plan_splits` and `read_split`; also hears of the groups that a table of
            state was read from. None raises the first error or grave defect, and warns of views
            that differ from files and of missing groups.
        before_each: called before each look at a log; what it raises stops the reading.
    """

    paths: tuple[str, ...]
    topics: frozenset[str] | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    end: End = End.WATERMARK
    replicas: Replicas | None = None
    internal: bool = False
    view: LogView = LogView.STARTED
    text: bool = False
    disorder_ms: int | None = None
    threads: int | None = None
    listener: Listener | None = field(default=None, compare=False)
    before_each: Callable[[], object] = field(default=_nothing, compare=False)

    @property
    def reader(self) -> Listener:
        """The listener of events while rows are read."""
        return self.listener or Tolerant()

    def request(self, table: TableName) -> Request:
        """Return the request for all rows of a table."""
        return Request(
            table,
            Bounds(topics=self.topics, disorder_ms=self.disorder_ms),
            self.isolation,
            self.replicas or usual_replicas(table),
            self.internal,
            required_topics=self.topics or frozenset(),
            end=self.end,
            view=self.view,
        )
