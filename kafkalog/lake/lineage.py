"""OpenLineage events of exports: which logs went into which table.

The library `openlineage-python`, which is not part of kafkalog, sends them to where its own
configuration says. That never fails an export, and holds its end up for a few seconds at most.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kafkalog.errors import UnsupportedError, UsageError
from kafkalog.lake.files import as_text
from kafkalog.paths.file_system import absolute
from kafkalog.paths.uris import LOCAL, is_object, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.lake import Append, Export, ExportSummary, IcebergAppend

_WAIT_S: Final = 10.0
_LIBRARIES: Final = ("openlineage", "urllib3")
_FILE: Final = "file"


class Lineage:
    """Sends events about the runs of a job; use it as a context manager.

    Args:
        job: `NAMESPACE/JOB`, or `JOB` in the namespace `kafkalog`.
        tell: called with a sentence, in any thread, if events cannot be sent.

    Raises:
        UnsupportedError: `openlineage-python` is not installed.
        UsageError: the job has no name.
    """

    def __init__(self, job: str, tell: Callable[[str], object]) -> None:
        try:
            from openlineage.client import event_v2
        except ImportError as error:
            raise UnsupportedError(
                "Lineage is sent by openlineage-python, which is not installed.",
                hint="pip install 'kafkalog[lineage]'",
            ) from error
        namespace, _, name = job.rpartition("/")
        if not name:
            raise UsageError("The job has no name.", hint="--lineage NAMESPACE/JOB")
        self.job = event_v2.Job(namespace or "kafkalog", name)
        self._tell = tell
        self._told: set[str] = set()
        self._is_over = False
        self._events: SimpleQueue[Any] = SimpleQueue()
        # The library may wait for a server as long as its configuration says: nobody waits for it.
        self._thread = Thread(target=self._send, name="kafkalog-lineage", daemon=True)

    def __enter__(self) -> Lineage:
        if "OPENLINEAGE_CLIENT_LOGGING" not in os.environ:
            for name in _LIBRARIES:  # a note of ours reports failures
                logging.getLogger(name).addHandler(logging.NullHandler())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for events that are on their way, for a few seconds at most."""
        self._events.put(None)
        self._thread.join(_WAIT_S)
        if self._thread.is_alive():
            self._say(f"Events of lineage were not sent within {_WAIT_S:.0f} s.")
            self._is_over = True

    def run(self) -> LineageRun:
        """Return a run of the job, which sends how it begins and ends."""
        return LineageRun(self)

    def put(self, event: Any) -> None:
        """Send an event, after those before."""
        self._events.put(event)

    def _send(self) -> None:
        try:
            from openlineage.client import OpenLineageClient

            client = OpenLineageClient()
        except Exception as error:  # noqa: BLE001 # transports raise exceptions of many libraries
            self._say(f"Lineage is not sent: {_words(error)}.")
            return
        # Without a configuration the library's transport is the console, which helps nobody here.
        if client.transport.kind == "console" and not client.config.transport:
            self._say(
                "Lineage is not sent: neither openlineage.yml nor OPENLINEAGE_URL says where."
            )
        while (event := self._events.get()) is not None:
            try:
                client.emit(event)
            except Exception as error:  # noqa: BLE001 # as above
                self._say(f"An event of lineage was not sent: {_words(error)}.")
        try:
            client.close(_WAIT_S)
        except Exception as error:  # noqa: BLE001 # as above
            self._say(f"Events of lineage were not sent: {_words(error)}.")

    def _say(self, sentence: str) -> None:
        if sentence not in self._told and not self._is_over:
            self._told.add(sentence)
            self._tell(sentence)


class LineageRun:
    """One run of the job, which begins when it is planned."""

    def __init__(self, lineage: Lineage) -> None:
        from openlineage.client.event_v2 import Run
        from openlineage.client.uuid import generate_new_uuid

        self._lineage = lineage
        self._id = str(generate_new_uuid())
        self._run_type = Run
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._has_begun = False

    def planned(self, run: Export | Append | IcebergAppend) -> None:
        """Send the beginning, with the logs that are read and the table that is written."""
        self._inputs = list(_inputs(run))
        self._outputs = [_output(run)]
        self._emit("START")

    def done(self, summary: ExportSummary) -> None:
        """Send the end, with what was written."""
        from openlineage.client.generated import output_statistics_output_dataset as statistics

        facet = statistics.OutputStatisticsOutputDatasetFacet(
            rowCount=summary.rows, size=summary.size_bytes
        )
        for one in self._outputs:
            one.outputFacets = {"outputStatistics": facet}
        self._emit("COMPLETE")

    def failed(self, error: BaseException) -> None:
        """Send that the run has failed, or was stopped."""
        from openlineage.client.facet_v2 import error_message_run

        if not self._has_begun:
            self._emit("START")
        if isinstance(error, KeyboardInterrupt):
            self._emit("ABORT")
            return
        facet = error_message_run.ErrorMessageRunFacet(_words(error), "Python")
        self._emit("FAIL", {"errorMessage": facet})

    def _emit(self, kind: str, facets: dict[str, Any] | None = None) -> None:
        from openlineage.client.event_v2 import RunEvent, RunState

        self._has_begun = True
        self._lineage.put(
            RunEvent(
                eventTime=datetime.now(UTC).isoformat(),
                producer=f"pkg:pypi/kafkalog@{version('kafkalog')}",
                run=self._run_type(self._id, facets or {}),
                job=self._lineage.job,
                eventType=RunState[kind],
                inputs=self._inputs,
                outputs=self._outputs,
            )
        )


def _inputs(run: Export | Append | IcebergAppend) -> Iterator[Any]:
    """Yield a data set for each topic of a log directory, with the bytes that are read."""
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.generated import input_statistics_input_dataset as statistics

    sizes: Counter[tuple[str, str]] = Counter()
    for split in (one for part in run.plan.parts for one in part.splits):
        sizes[split.log_dir, split.topic] += split.size_bytes
    for (log_dir, topic), size in sorted(sizes.items()):
        facet = statistics.InputStatisticsInputDatasetFacet(size=size)
        place = f"{without_credentials(log_dir)}/{topic}"
        yield InputDataset(*_name(place), {"inputStatistics": facet})


def _output(run: Export | Append | IcebergAppend) -> Any:
    """Return the data set of the table, with its columns."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import schema_dataset

    facet = schema_dataset.SchemaDatasetFacet(fields=_fields(run.schema))
    return OutputDataset(*_name(run.destination), facets={"schema": facet})


def _name(place: str) -> tuple[str, str]:
    """Return namespace and name of a place as OpenLineage has them."""
    place = as_text(without_credentials(place))
    if is_object(place):
        parts = urlsplit(place)
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"
    return _FILE, absolute(place.removeprefix(LOCAL))


def _fields(columns: Iterable[Any]) -> list[Any]:
    """Return the fields of columns as OpenLineage has them, with those within."""
    return [_field(one.name, one.type, place) for place, one in enumerate(columns, 1)]


def _field(name: str, kind: Any, place: int | None = None) -> Any:
    from openlineage.client.facet_v2 import schema_dataset
    from pyarrow import types

    word, inner = str(kind), []
    if types.is_struct(kind):
        word, inner = "struct", _fields(kind)
    elif types.is_map(kind):
        word, inner = "map", [_field("key", kind.key_type), _field("value", kind.item_type)]
    elif types.is_list(kind) or types.is_large_list(kind):
        word, inner = "array", [_field("_element", kind.value_type)]
    return schema_dataset.SchemaDatasetFacetFields(name, word, ordinal_position=place, fields=inner)


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
