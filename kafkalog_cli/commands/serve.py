"""`kafkalog serve`: serve log directories to Kafka clients, without a broker."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog_cli import options as opt

if TYPE_CHECKING:
    from kafkalog.server.model import Address, Client

_HOST_PORT = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]*)):([0-9]{1,5})")


def serve(
    paths: opt.PathsArgument,
    listen: Annotated[str, typer.Option(
        "--listen", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.",
    )] = "127.0.0.1:9092",
    advertise: Annotated[str | None, typer.Option(
        "--advertise", metavar="HOST:PORT",
        help="What clients are told to connect to, if it is another address.",
    )] = None,
    topic: opt.TopicsOption = None,
    internal: opt.InternalOption = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Do not name clients.")] = False,
) -> int:  # fmt: skip
    """Serve log directories to Kafka clients, read-only, without a broker.

    Any client can consume: kafka-console-consumer, kcat, Spark, Flink, your own. Batches are sent
    as they lie in the files, up to the high watermark that the broker noted. Nothing is written,
    and whatever would write is refused. SIGTERM or Ctrl-C ends it.


    \b
    kafkalog serve /var/lib/kafka
    kafkalog serve /var/lib/kafka --listen 127.0.0.1:0 --topic orders
    """
    from kafkalog.server.model import ServeListener, ServeOptions
    from kafkalog.server.run import serve as run
    from kafkalog_cli.outcome import Outcome, show_note, show_parent

    outcome = Outcome()

    class Shown(ServeListener):
        failed = staticmethod(outcome.error)
        noted = staticmethod(show_note)

        def started(self, address: Address) -> None:
            sys.stdout.write(f"bootstrap.servers={address}\n")
            sys.stdout.flush()

        def connected(self, client: Client) -> None:
            if not quiet:
                show_note(f"{client.host} {client.software} {client.client_id or ''}".rstrip())

    options = ServeOptions(
        listen=parse_address(listen),
        advertise=None if advertise is None else parse_address(advertise),
        topics=None if topic is None else tuple(topic),
        internal=internal,
    )
    run(paths, options, Shown(), parents=show_parent)
    return outcome.status


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT` or `[IPv6]:PORT`. Raises `UsageError`."""
    from kafkalog.server.model import Address

    match = _HOST_PORT.fullmatch(text.strip())
    if match is None or int(match[3]) > 0xFFFF:
        raise UsageError(f"{text!r} is not HOST:PORT.", hint="For example 127.0.0.1:9092.")
    return Address(match[1] or match[2], int(match[3]))
