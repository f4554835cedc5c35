"""Which tables there are besides those of logs, and what a reader of tables is given."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from formats.late_classes import dataclass
from kafkalog.log.defects import Tolerant
from kafkalog.model import Isolation, LogView, Replicas
from kafkalog.tables.model import Bounds, Request, TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping, Sequence

    from kafkalog.errors import Listener
    from kafkalog.log.typed import TypedColumn
    from kafkalog.log.typed.remarks import Remark


class StateTable(StrEnum):
    """The tables of what the internal topics add up to."""

    GROUPS = "groups"
    COMMITS = "commits"
    TOPICS = "topics"
    CONFIGS = "configs"


def _nothing() -> None:
    """Let reading go on."""


class TypedListener:
    """Hears what becomes of the values of typed columns, and passes over it."""

    def decoded(
        self, column: TypedColumn, remarks: Sequence[Remark], losses: Mapping[str, int]
    ) -> None:
        """Take the remarks about a column, and how many of some more values lost what."""

    def undecoded(self, column: TypedColumn, reason: str) -> None:
        """Take that a value is null in a column, and why it does not decode."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Some logs, and how their tables are read.

    Attributes:
        paths: log directories, partition directories, or single logs.
        topics: these topics only; None for all.
        isolation: for records: those that consumers of this isolation level get, or all.
        replicas: how several copies of a partition are handled; None for the usual way.
        internal: whether internal topics of brokers are wanted, too.
        view: what of a partition directory is shown.
        text: whether keys and values are text: 0x and hexadecimal digits if they are no UTF-8.
        disorder_ms: no record is older than the newest before it by more than this, so that
            reading ends soon after a time range; None if that is not known.
        threads: number of decoding threads; None for one per processor, up to 8.
        listener: as for `plan_splits` and `read_split`; also hears of the groups that a table of
            state was read from. None raises the first error or grave defect, and warns of views
            that differ from files and of missing groups.
        partitions: these partitions only; None for all.
        typed: more columns of records, which schemas or JSON give types to.
        typed_listener: hears what becomes of their values.
        before_each: called before each look at a log; what it raises stops the reading.
    """

    paths: tuple[str, ...]
    topics: Collection[str] | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    replicas: Replicas | None = None
    internal: bool = False
    view: LogView = LogView.RECOVERED
    text: bool = False
    disorder_ms: int | None = None
    threads: int | None = None
    listener: Listener | None = field(default=None, compare=False)
    before_each: Callable[[], object] = field(default=_nothing, compare=False)
    partitions: Container[int | None] | None = None
    typed: tuple[TypedColumn, ...] = ()
    typed_listener: TypedListener = field(default_factory=TypedListener, compare=False)

    @property
    def reader(self) -> Listener:
        """The listener of events while rows are read."""
        return self.listener or Tolerant()

    def means(self, topic: str, partition: int) -> bool:
        """Return whether a partition is wanted."""
        is_number = self.partitions is None or partition in self.partitions
        return is_number and (self.topics is None or topic in self.topics)

    def request(self, table: TableName) -> Request:
        """Return the request for all rows of a table."""
        bounds = Bounds(self.topics, self.partitions, disorder_ms=self.disorder_ms)
        return Request(
            table,
            bounds,
            self.isolation,
            self.replicas,
            self.internal,
            named=bounds,
            view=self.view,
        )
