"""`docs/library.md`: the public names of `import kafkalog`, and examples that a test runs."""

from __future__ import annotations

import dataclasses
import enum
import inspect

import kafkalog

_HEAD = """# Library

`import kafkalog` gives all names below; each is loaded when it is first used. The library never
prints and never exits. It never writes to a log; `kafkalog.salvage.salvage` writes a new one. What
stops the work is an exception, a subclass of `KafkaLogError`; what is wrong in the data is a
`Defect`, a value among the others.

The examples run from the root of the repository.

## Records and batches

```pycon
>>> import kafkalog
>>> from kafkalog import Record, Selection
>>> selection = Selection(from_offset=258, to_offset=261)
>>> for record in kafkalog.read_records("examples/log-dir/orders-0", selection):
...     if isinstance(record, Record):
...         print(record.offset, record.timestamp, record.key)
258 1704067458000 b'user-20'
259 1704067459000 b'user-39'
260 1704067460000 b'user-28'
```

`read_records` and `read_batches` yield defects in place, so tell the two apart. A null key or value
is `None`, an empty one `b""`.

```pycon
>>> for found in kafkalog.read_records("examples/damaged/orders-0"):
...     if isinstance(found, kafkalog.Defect):
...         print(found.severity, found.reference, found.position, found.size_bytes)
damage batch-crc-mismatch 1862 467
damage batch-length-invalid 6037 476
```

What a read_committed consumer is given leaves out aborted transactions and markers:

```pycon
>>> payments = "examples/log-dir/payments-0"
>>> len(list(kafkalog.read_records(payments)))
48
>>> len(list(kafkalog.read_records(payments, Selection(read_committed=True))))
27
```

## Columns

`scan` gives the same records as Arrow record batches, far faster, in bounded memory; polars, duckdb
and pandas take them as they are. It needs `pip install 'kafkalog[arrow]'`. Damage is told to
`defects`; columns that are not asked for are not built. `to_reader` gives the same as a stream for
whatever speaks Arrow's C stream protocol, `to_table` as one table in memory; with `batches=True`
the rows are batches.

```pycon
>>> damage = []
>>> columns = ["offset", "key"]
>>> tables = kafkalog.scan("examples/damaged/orders-0", columns=columns, defects=damage.append)
>>> sum(table.num_rows for table in tables), [defect.reference for defect in damage]
(240, ['batch-crc-mismatch', 'batch-length-invalid'])
>>> kafkalog.to_table("examples/log-dir/orders-0", columns=["timestamp"]).num_rows
1000
```

## Lookups

```pycon
>>> log = kafkalog.UnifiedLog("examples/log-dir/orders-0")
>>> log.log_start_offset, log.log_end_offset
(0, 1000)
>>> found = kafkalog.lookup_timestamp(log, 1704067460000)
>>> found.offset, found.batch.position, found.bytes_read
(260, 471, 1009)
>>> kafkalog.lookup_offset(log, 1000).reason
'nothing to fetch yet: the readable part of the log ends at 1000'
```

## Checks

`Verification.verify` takes all targets of a run and yields defects as it goes; `summary` counts.

```pycon
>>> run = kafkalog.Verification()
>>> [defect.reference for defect in run.verify("examples/log-dir")]
[]
>>> run.summary.files, run.summary.batches
(62, 179)
```

## Retention and rolls

Configs come from options, a broker's properties file, the metadata log of the log directory, and
Kafka's defaults; every value says where it is from.

```pycon
>>> sources = kafkalog.ConfigSources({"retention.ms": "240000"})
>>> configs = sources.in_log_dir("examples/log-dir").of_topic("orders")
>>> configs["segment.bytes"].value, configs["segment.bytes"].source
(12000, '__cluster_metadata-0 offset 16')
>>> partition = kafkalog.UnifiedLog("examples/log-dir/orders-0").partition
>>> found = kafkalog.simulate_retention(partition, configs, now_ms=1704067700000)
>>> for verdict in found.verdicts:
...     print(verdict.segment.base_offset, verdict.is_deleted, verdict.reason, verdict.deletable_at)
0 True retention.ms 1704067689001
250 False within-retention 1704067939001
500 False within-retention 1704068189001
750 False within-retention 1704068439001
>>> settings, _ = kafkalog.roll_settings(configs)
>>> [replay] = kafkalog.simulate_roll(partition, [settings])
>>> [(segment.base_offset, str(segment.rolled_by)) for segment in replay.segments]
[(0, 'segment.bytes'), (250, 'segment.bytes'), (500, 'segment.bytes'), (750, 'None')]
```

## Directories and side files

```pycon
>>> log_dir = kafkalog.open_path("examples/log-dir")
>>> [(partition.topic, len(partition.segments)) for partition in log_dir.partitions][-2:]
[('orders', 4), ('payments', 1)]
>>> kafkalog.read_leader_epochs("examples/log-dir/orders-0/leader-epoch-checkpoint")
[EpochEntry(epoch=0, start_offset=0)]
>>> with kafkalog.OffsetIndex("examples/log-dir/orders-0/00000000000000000250.index") as index:
...     print(index.lookup(300))
OffsetIndexEntry(entry=1, offset=299, position=1862)
```

## Errors

```pycon
>>> kafkalog.open_path("README.md")
Traceback (most recent call last):
kafkalog.errors.NotAKafkaFileError: The name is none that Kafka gives to a file. [README.md]
```

Every error has `reference`, `message`, `path`, `position`, `note`, `hint` and `exit_code`.
"""


def library_page() -> str:
    """The text of the page."""
    parts = [_HEAD, "\n## All names\n"]
    for name in kafkalog.__all__:
        value = getattr(kafkalog, name)
        parts.append(f"\n### `{name}{_signature(value)}`\n\n{_summary(value)}\n")
        parts.extend(_members(value))
    return "".join(parts)


def _signature(value: object) -> str:
    """Names of the arguments, where calling it is how it is used."""
    if isinstance(value, type) and (dataclasses.is_dataclass(value) or _is_plain(value)):
        return ""
    parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type] # callable
    return f"({', '.join(_parameter(parameter) for parameter in parameters)})"


def _is_plain(value: type) -> bool:
    return issubclass(value, enum.Enum | BaseException)


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    return f"{parameter.name}=…"


def _summary(value: object) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _members(value: object) -> list[str]:
    """A list of what a class offers: values of an enumeration, fields, properties and methods."""
    if not isinstance(value, type) or issubclass(value, BaseException):
        return []
    if issubclass(value, enum.Enum):
        return ["\n", ", ".join(f"`{member.value}`" for member in value), "\n"]
    lines: dict[str, str] = {}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name[0] != "_"]
        lines[""] = f"Fields: {', '.join(f'`{name}`' for name in names)}.\n"
    for base in reversed(value.__mro__[:-1]):
        for name, member in vars(base).items():
            function = getattr(member, "fget", None) or getattr(member, "func", None) or member
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            call = ""
            if function is member:
                call = _signature(member).replace("(self, ", "(").replace("(self)", "()")
            lines[name] = f"- `{name}{call}`: {_summary(function)}"
    return ["\n", "\n".join(lines.values()).rstrip(), "\n"] if lines else []
