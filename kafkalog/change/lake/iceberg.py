"""An Iceberg table that grows: data and the offsets where the next run begins are one commit.

Nothing else is kept. The offsets are in the summary of the snapshot that a run has added, and, for
when that snapshot has expired, in the properties of the table. The package `pyiceberg`, which is
not part of kafkalog, speaks to the catalog.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table.snapshots import ancestors_of

from kafkalog.change.lake.iceberg_columns import (
    change_columns,
    evolution_of,
    iceberg_schema,
    spec_of,
)
from kafkalog.change.lake.iceberg_commits import DEFECTS, INCREMENT_PROPERTY, notes_of, once
from kafkalog.change.lake.iceberg_files import IO_PROPERTY, data_file
from kafkalog.change.lake.model import Increment
from kafkalog.change.lake.options import OF_A_RUN, options_of, require_same_options, stored_columns
from kafkalog.change.lake.plan import INCREMENT
from kafkalog.errors import (
    ChangedSinceError,
    CorruptDataError,
    DataError,
    DestinationExistsError,
    KafkaLogError,
    TemporaryError,
    UnreadableError,
    UnwritableError,
    UsageError,
)
from kafkalog.io.documents import Anything, read_document
from kafkalog.io.paths.uris import LOCAL, without_credentials
from kafkalog.io.storage import make_directories

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

    from kafkalog.change.lake.evolution import Evolution
    from kafkalog.change.lake.model import ExportRequest
    from kafkalog.log.typed import TypedColumn
    from kafkalog.model import Defect

_OPTIONS: Final = "kafkalog.options"
_SEQUENCE: Final = "kafkalog.sequence-number"
# pyiceberg merges manifests only if the table asks for it; without, each commit adds one.
_MERGES: Final = "commit.manifest-merge.enabled"
_SECRET: Final = ("secret", "token", "password", "credential", "key", "sas", "connection-string")
_BUSY: Final = {
    "ConnectionError", "ServiceUnavailableError", "TTransportException", "Timeout", "TimeoutError",
}  # fmt: skip
"""What is raised by catalogs of all kinds, and the libraries by which they are reached."""
TRIES: Final = 10
WAIT_S: Final = 0.2  # more before each try: 9 s in all


class IcebergTable:
    """A table of a catalog, which may not exist yet.

    Args:
        name: `CATALOG.NAMESPACE.TABLE`; a namespace may have several levels.
        properties: the catalog's, added to those that pyiceberg finds in `~/.pyiceberg.yaml` and in
            the environment.

    Attributes:
        table: its present state; None if it does not exist.
        may_have_committed: whether it may name the files of the last commit that was tried.

    Raises:
        UsageError: the name is none, or the catalog is unknown.
        UnreadableError: the catalog cannot be reached.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        catalog, _, rest = name.partition(".")
        self._identifier = tuple(rest.split("."))
        if "/" in name or len(self._identifier) < 2 or not all((catalog, *self._identifier)):
            raise UsageError(
                "This is no table of a catalog.",
                path=without_credentials(name),
                hint="--to CATALOG.NAMESPACE.TABLE",
            )
        self.shown = name
        self._name = catalog
        self._properties = dict(properties)
        self._warehouse = _local(properties.get("warehouse", ""))
        self._catalog = self._opened()
        self.table: Table | None = None
        self.may_have_committed = False
        self._columns: Schema | None = None
        self._evolved: Evolution | None = None
        self.load()

    def close(self) -> None:
        """End the connections to the catalog."""
        with suppress(Exception):  # a connection that is lost need not be closed
            self._catalog.close()

    def _opened(self) -> Catalog:
        is_local = self._properties.get("uri", "").startswith("sqlite:///")
        # SQLite creates its file, but not the directory.
        if is_local and self._warehouse is not None:
            with suppress(OSError):  # the catalog says what is wrong
                make_directories(self._warehouse)
        try:
            catalog = load_catalog(self._name, **self._properties)
        except Exception as error:  # noqa: BLE001 # catalogs raise exceptions of many libraries
            if _is_busy(error):
                raise TemporaryError(
                    f"The catalog {self._name} does not answer: {self._words(error)}."
                ) from None  # as below
            raise UsageError(
                f"The catalog {self._name} cannot be opened: {self._words(error)}.",
                hint="Describe it in ~/.pyiceberg.yaml or with --catalog-conf, or let --warehouse "
                "DIR have one in an SQLite file.",
            ) from None  # the cause would show credentials
        self._properties.update(
            (key, value) for key, value in catalog.properties.items() if isinstance(value, str)
        )  # for messages
        if _local(catalog.properties.get("warehouse", "")) is not None:
            self._sync_files(catalog)
        return catalog

    def _sync_files(self, catalog: Catalog) -> None:
        catalog.properties.setdefault(
            IO_PROPERTY, "kafkalog.change.lake.iceberg_files.SyncedFileIO"
        )

    def load(self) -> None:
        with self.failing(UnreadableError, "read"):
            try:
                self.table = self._catalog.load_table(self._identifier)
                if _local(self.table.location()) is not None:
                    # pyiceberg chooses the FileIO when it loads a table, and only the loaded table
                    # says where it lies: so it is loaded again.
                    is_synced = IO_PROPERTY in self._catalog.properties
                    self._sync_files(self._catalog)
                    if not is_synced:
                        self.table = self._catalog.load_table(self._identifier)
            except NoSuchTableError:
                self.table = None

    @property
    def place(self) -> str | None:
        """The local directory of the table; None if it is elsewhere, or unknown."""
        return self._warehouse if self.table is None else _local(self.table.location())

    def create(self, schema: Any) -> None:
        """Create the table for rows of a `pyarrow.Schema`, unless it exists.

        Records are partitioned by topic and day, other rows by topic.
        """
        if self.table is not None:
            return
        wanted = iceberg_schema(schema)
        with self.failing(UnwritableError, "created"):
            for count in range(1, len(self._identifier)):
                with suppress(NamespaceAlreadyExistsError):
                    self._catalog.create_namespace(self._identifier[:count])
            with suppress(TableAlreadyExistsError):  # by another run, at this moment
                self._catalog.create_table(
                    self._identifier, wanted, partition_spec=spec_of(wanted),
                    properties={_MERGES: "true"},
                )  # fmt: skip
        self.load()

    def evolve(self, schema: Any, decoded: Iterable[str] = ()) -> Evolution:
        """Find the columns that the table has after a run with these; change nothing yet.

        Args:
            schema: the `pyarrow.Schema` of the rows of the run.
            decoded: as for `Evolution`.

        Raises:
            DestinationExistsError: a column has another type, or the table requires one that the
                run lacks.
        """
        assert self.table is not None, "it was created"
        evolution = evolution_of(self.table, schema, self.shown, decoded)
        # Never committed: it only shows the schema, with ids, that the commit will make.
        with self.failing(UnreadableError, "read"):
            change = self.table.transaction()
            # pyiceberg orders the identifier fields as it likes: it would make another schema.
            if not evolution.schema.equals(evolution.table):
                self._evolved = evolution
                change_columns(change, evolution)
            found = change.table_metadata.schema()
            # Files need the columns that partitions are made of, even if the run lacks them.
            sources = [found.find_column_name(one.source_id) for one in self.table.spec().fields]
            names = dict.fromkeys([*evolution.names, *filter(None, sources)])
            self._columns = found.select(*names)
        return evolution

    # What is in it ---------------------------------------------------------------------------

    def last(self, asked: ExportRequest) -> Increment | None:
        """Return what the last run has added; None if none has.

        Raises:
            DestinationExistsError: it has other rows, or those of a run with other options.
            CorruptDataError: what a run has noted was edited, or the table was set back.
        """
        table = self.table
        if table is None:
            return None
        noted = table.properties.get(_OPTIONS)
        if noted is None:
            if table.current_snapshot() is not None:
                raise DestinationExistsError(
                    "It exists, and is not an export of kafkalog.",
                    path=self.shown,
                    hint="Choose another name.",
                )
            return None
        options = read_document(noted, Anything(), self.shown, "what an export notes")
        require_same_options(options, asked, self.shown)
        first = None
        for one in ancestors_of(table.current_snapshot(), table.metadata):
            first = one
            if one.summary is not None and INCREMENT_PROPERTY in one.summary.additional_properties:
                return self._increment(one.summary.additional_properties[INCREMENT_PROPERTY])
        # The snapshot has expired, if all that are left came after it.
        after = int(table.properties.get(_SEQUENCE, "0"))
        if first is None or (after and (first.sequence_number or 0) <= after):
            raise CorruptDataError(
                "The table was rolled back to before the last run, and nothing says what it "
                "now holds.",
                path=self.shown,
                hint="Export into another table.",
            )
        return self._increment(table.properties.get(INCREMENT_PROPERTY, ""))

    def typed_columns(self) -> tuple[TypedColumn, ...]:
        """Return the typed columns of the last run; `last` has looked at what it noted."""
        noted = None if self.table is None else self.table.properties.get(_OPTIONS)
        if noted is None:
            return ()
        return stored_columns(read_document(noted, Anything(), self.shown, "what an export notes"))

    def _increment(self, text: str) -> Increment:
        fields = read_document(text, INCREMENT, self.shown, "what a run of an export notes")
        return Increment.from_json(fields)

    # The work --------------------------------------------------------------------------------

    def of_tasks(self) -> dict[str, Any]:
        """Return what `write_data_files` must know about the table."""
        assert self.table is not None, "it was created"
        assert self._columns is not None, "evolve() was called"
        table, columns = self.table, self._columns
        return {
            "io": {key: value for key, value in table.io.properties.items()
                   if isinstance(value, str)},
            "location": table.location(),
            "properties": {key: value for key, value in table.properties.items()
                           if key.startswith("write.")},
            "schema": json.loads(columns.model_dump_json()),
            "spec": json.loads(table.spec().model_dump_json()),
        }  # fmt: skip

    def require_files(self, files: Iterable[tuple[str, int]]) -> None:
        """Raise unless this process sees the files of these sizes, which tasks have written.

        Raises:
            UnreadableError: one is missing, or has another size.
        """
        assert self.table is not None, "it was created"
        for file, written in files:
            with self.failing(UnreadableError, "read"):
                size = len(self.table.io.new_input(file))
            if size != written:
                raise UnreadableError(
                    f"A task wrote {written} bytes, but it has {size}.", path=file
                )

    def commit(
        self, files: Sequence[Mapping[str, Any]], asked: ExportRequest, last: Increment | None,
        increment: Increment, defects: Sequence[Defect], more: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Add files and an increment as one snapshot, after the last one.

        The snapshot also names what was skipped, and has `more` notes. Other programs may change
        the table meanwhile, but no other run may add to it.

        On disk after a crash: the table before, or after the commit.

        Raises:
            ChangedSinceError: another run has added to it, or it has other partitions or columns
                now.
            UncertainError: the catalog did not say whether the commit has succeeded.
        """
        assert self.table is not None, "it was created"
        spec_id = self.table.spec().spec_id
        notes = {**notes_of(increment, defects), **more}
        for attempt in range(TRIES):
            time.sleep(WAIT_S * attempt)
            self.load()
            if self.table is None or self.last(asked) != last:
                raise ChangedSinceError(
                    "Another run has added to the table meanwhile.",
                    path=self.shown,
                    hint="Repeat the command.",
                    is_temporary=True,
                )
            # The data files were written for these partitions.
            if self.table.spec().spec_id != spec_id:
                raise ChangedSinceError(
                    "The partitions of the table were changed meanwhile.",
                    path=self.shown,
                    hint="Repeat the command.",
                    is_temporary=True,
                )
            if self._has_committed(self.table, files, asked, notes):
                return
        raise ChangedSinceError(
            "Other programs change the table all the time.",
            path=self.shown,
            hint="Repeat the command.",
            is_temporary=True,
        )

    def _has_committed(
        self, table: Table, files: Sequence[Mapping[str, Any]], asked: ExportRequest,
        notes: Mapping[str, str],
    ) -> bool:  # fmt: skip
        """Try once; return False if the table has changed since it was read."""
        # As `Table.append` of pyiceberg chooses.
        merges = table.properties.get(_MERGES, "false").lower() == "true"
        sequence = table.metadata.next_sequence_number()
        options = {key: value for key, value in options_of(asked).items() if key not in OF_A_RUN}
        with self.failing(UnwritableError, "written"):
            change = once(table)
            if self._evolved is not None:
                change_columns(change, self._evolved)
            assert self._columns is not None, "evolve() was called"
            # A file names its columns by id; an id that changed would show the values elsewhere.
            now = change.table_metadata.schema().fields
            if any(one not in now for one in self._columns.fields):
                raise ChangedSinceError(
                    "The columns of the table were changed meanwhile.",
                    path=self.shown,
                    hint="Repeat the command.",
                    is_temporary=True,
                )
            update = change.update_snapshot(snapshot_properties=dict(notes))
            adding = update.merge_append() if merges else update.fast_append()
            for one in files:
                adding.append_data_file(data_file(one, table.spec().spec_id))
            adding.commit()
            kept = {key: value for key, value in notes.items() if key != DEFECTS}
            kept |= {_OPTIONS: json.dumps(options), _SEQUENCE: str(sequence)}
            change.set_properties(kept)
        return self.is_made(change, adding.snapshot_id)

    def is_made(self, change: Transaction, snapshot_id: int) -> bool:
        """Commit a transaction; return False if the table has changed since it was read."""
        self.may_have_committed = True
        try:
            change.commit_transaction()
        except CommitFailedException:
            # Refused as a whole: the new files belong to no snapshot, and may be removed.
            self.may_have_committed = False
            return False
        except Exception as error:  # noqa: BLE001 # whatever it was, it may have committed
            # A connection that failed to commit may still show what it has not committed.
            self.close()
            with suppress(DataError):  # else it stays unknown
                self._catalog = self._opened()
                self.load()
                if self.table and self.table.metadata.snapshot_by_id(snapshot_id):
                    return True
            raise UncertainError(
                f"It is unknown whether the catalog made the commit: {self._words(error)}.",
                path=self.shown,
                hint="Repeat the command: it continues where the table ends.",
                is_temporary=True,
            ) from None
        return True

    def remove(self, files: Sequence[str]) -> None:
        """Remove data files that no snapshot names, as far as possible."""
        if self.table is None:  # a table of rejects is made with its first file
            return
        for file in files:
            with suppress(Exception):  # stores raise exceptions of many libraries; a file may stay
                self.table.io.delete(file)

    @contextmanager
    def failing(self, kind: type[KafkaLogError], done: str) -> Iterator[None]:
        """Turn what catalogs and file systems raise into an error."""
        try:
            yield
        except (KafkaLogError, NoSuchTableError):
            raise
        except Exception as error:  # noqa: BLE001 # catalogs raise exceptions of many libraries
            raise kind(
                f"The Iceberg table cannot be {done}: {self._words(error)}.",
                path=self.shown,
                is_temporary=_is_busy(error),
            ) from None  # the cause may show credentials

    def _words(self, error: Exception) -> str:
        """Return the words of an error on one line, without the values of secret properties."""
        text = " ".join(str(error).split()) or type(error).__name__
        for name, value in self._properties.items():
            if name == "uri":
                text = text.replace(value, without_credentials(value))
            elif any(word in name.lower() for word in _SECRET) and value:
                text = text.replace(value, "…")
        return text.rstrip(".")


def _local(location: str) -> str | None:
    """Return the path of a location; None if it is on no local disk.

    Hadoop, and so Hive, writes one slash: `file:/srv`.
    """
    path = location.removeprefix(LOCAL).removeprefix("file:")
    return path if path.startswith("/") else None


def _is_busy(error: Exception) -> bool:
    """Return whether a catalog may answer a little later."""
    names = {one.__name__ for one in type(error).__mro__}
    return bool(names & _BUSY) or "database is locked" in str(error)


class UncertainError(UnwritableError):
    """The catalog did not say whether a commit has succeeded."""
