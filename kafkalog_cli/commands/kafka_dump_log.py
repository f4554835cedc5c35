"""`kafkalog kafka-dump-log`: a drop-in replacement for Kafka's own `kafka-dump-log.sh`."""

from __future__ import annotations

import argparse
import sys

from formats import topic_names
from formats.releases import by_name, newest, releases
from kafkalog_cli.usage import Parser


def dump_files(argv: list[str]) -> int:
    from kafkalog.errors import UsageError
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.kafka_dump import KafkaDump

    parser = _parser(needs_files="--version" not in argv)
    arguments, others = parser.parse_known_args(argv)
    for word in others:  # the tool ignores words that are no options
        if word.startswith("-"):
            raise UsageError(
                f"{word} is not an option of kafka-dump-log.sh {arguments.kafka}.",
                hint="`kafkalog kafka-dump-log --help` shows the usage.",
            )
    if arguments.version:
        _put_version(arguments.kafka)
        return 0
    outcome = Outcome()
    dump = KafkaDump(_options(arguments), outcome)
    # As Java splits: no empty elements at the end, but in between.
    for path in arguments.files.rstrip(",").split(","):
        dump.dump(path)
    dump.finish()
    return outcome.status


_STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"
_DECODERS = {
    _STRING_DECODER: 0,
    "org.apache.kafka.tools.api.IntegerDecoder": 4,
    "org.apache.kafka.tools.api.LongDecoder": 8,
}
_PAYLOAD_DECODERS = {
    "offsets": topic_names.CONSUMER_OFFSETS,
    "transaction-log": topic_names.TRANSACTION_STATE,
    "cluster-metadata": topic_names.CLUSTER_METADATA,
    "remote-log-metadata": topic_names.REMOTE_LOG_METADATA,
    "share-group-state": topic_names.SHARE_GROUP_STATE,
}


def _put_version(release: str) -> None:
    """Print the release of the tool that this one replaces, in that tool's form, and ours."""
    from importlib.metadata import version

    sys.stdout.write(f"{release}.0 (kafkalog {version('kafkalog')})\n")


def _parser(*, needs_files: bool = True) -> argparse.ArgumentParser:
    parser = Parser(
        prog="kafkalog kafka-dump-log",
        allow_abbrev=False,
        description="The options of Kafka's kafka-dump-log.sh; the bytes on stdout are the "
        "same. Exit status: 0 fine, 8 damage found, 2 usage, 3 unreadable.",
    )
    add = parser.add_argument
    add("--version", action="store_true", help="print the version and exit")
    names = [one.name for one in releases()]
    add(
        "--kafka", choices=names, default=newest().name, metavar="|".join(names),
        help="release of Kafka whose text is printed; the newest by default",
    )  # fmt: skip
    add("--files", required=needs_files, help="comma-separated list of files to dump")
    add("--deep-iteration", action="store_true", help="also print records")
    add("--print-data-log", action="store_true", help="print records with key and payload")
    add("--skip-record-metadata", action="store_true", help="leave out the records' metadata")
    # The tool's default: `Integer.MAX_VALUE` stands for no limit.
    add(
        "--max-bytes", type=int, default=2**31 - 1, help="read at most this many bytes of each .log"
    )
    add("--max-message-size", type=int, default=5 * 1024 * 1024, help="largest batch of an index")
    add("--verify-index-only", action="store_true", help="compare index and log, print no entries")
    add("--index-sanity-check", action="store_true", help="only check the index's own sanity")
    for part in ("key", "value"):
        add(
            f"--{part}-decoder-class",
            nargs="?",  # with or without an argument, as in the tool
            const=_STRING_DECODER,
            help=f"StringDecoder (the default), IntegerDecoder or LongDecoder for the {part}",
        )
    for decoder, topic in _PAYLOAD_DECODERS.items():
        add(f"--{decoder}-decoder", action="store_true", help=f"decode records of {topic}")
    return parser


def _options(arguments: argparse.Namespace) -> DumpOptions:  # type: ignore[name-defined] # noqa: F821
    from kafkalog_cli.output.kafka_dump import DumpOptions
    from kafkalog_cli.output.kafka_text import RecordText

    chosen = [
        name
        for name in _PAYLOAD_DECODERS
        if getattr(arguments, f"{name.replace('-', '_')}_decoder")
    ]
    decoder = None
    if chosen:
        from kafkalog.files.payloads.kinds import PayloadKind

        decoder = PayloadKind(chosen[0])  # the first in the order in which the tool asks for them
    classes = (arguments.key_decoder_class, arguments.value_decoder_class)
    # Any decoder implies printing content.
    content = bool(arguments.print_data_log or chosen or any(classes))
    numbers = [_width(name) for name in classes]
    return DumpOptions(
        deep=content or arguments.deep_iteration,  # and any content implies records
        record=RecordText(
            content=content,
            metadata=not arguments.skip_record_metadata,
            decoder=decoder,
            numbers=(numbers[0], numbers[1]),
            release=by_name(arguments.kafka),
        ),
        max_bytes=arguments.max_bytes,
        max_message_size=arguments.max_message_size,
        verify_only=arguments.verify_index_only,
        sanity_check=arguments.index_sanity_check,
    )


def _width(decoder: str | None) -> int:
    """Return the size in bytes of the integers of a decoder class, 0 for text."""
    from kafkalog.errors import UnsupportedError

    if decoder is None:
        return 0
    if decoder not in _DECODERS:
        raise UnsupportedError(
            f"The decoder class {decoder} is Java and cannot be run here.",
            hint="`kafkalog dump-segment --value-format hex -o ndjson` gives the bytes.",
        )
    return _DECODERS[decoder]
