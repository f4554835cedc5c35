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
    groups: Annotated[str | None, typer.Option(
        "--groups", metavar="FILE",
        help="Keep committed offsets in FILE, a line of JSON per commit; else in memory.",
    )] = None,
    read_only_groups: Annotated[bool, typer.Option(
        "--read-only-groups", help="Refuse to commit offsets.",
    )] = False,
    tls_cert: Annotated[str | None, typer.Option(
        "--tls-cert", metavar="FILE", help="Speak TLS, with this certificate (PEM).",
    )] = None,
    tls_key: Annotated[str | None, typer.Option(
        "--tls-key", metavar="FILE", help="The certificate's private key (PEM).",
    )] = None,
    sasl_plain: Annotated[str | None, typer.Option(
        "--sasl-plain", metavar="FILE",
        help="Let in who knows a password of FILE, by SASL/PLAIN; a line is USER=PASSWORD.",
    )] = None,
    metrics: Annotated[str | None, typer.Option(
        "--metrics", metavar="HOST:PORT", help="Show metrics to Prometheus there.",
    )] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Do not name clients.")] = False,
) -> int:  # fmt: skip
    """Serve log directories to Kafka clients, read-only, without a broker.

    Any client can consume: kafka-console-consumer, kcat, Spark, Flink, your own. Batches are sent
    as they lie in the files, up to the high watermark that the broker noted. Nothing is written
    to PATH, and whatever would write is refused. Consumer groups work, and begin with the offsets
    that they had committed. SIGTERM or Ctrl-C ends it.


    \b
    kafkalog serve /var/lib/kafka
    kafkalog serve /var/lib/kafka --listen 127.0.0.1:0 --topic orders
    kafkalog serve /var/lib/kafka --groups offsets.ndjson --metrics 127.0.0.1:9100
    """
    from kafkalog.server.model import ServeListener, ServeOptions
    from kafkalog.server.run import serve as run
    from kafkalog_cli.outcome import Outcome, show_note, show_parent, show_warning

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
        groups_file=groups,
        read_only_groups=read_only_groups,
        tls=_tls(tls_cert, tls_key),
        sasl_file=sasl_plain,
        metrics=None if metrics is None else parse_address(metrics),
    )
    if groups is not None and read_only_groups:
        raise UsageError("--groups and --read-only-groups exclude each other.")
    if options.is_open_to_others:
        show_warning(
            "Every machine that reaches this one can read what is served:"
            " use --tls-cert and --sasl-plain, or listen on 127.0.0.1."
        )
    run(paths, options, Shown(), parents=show_parent)
    return outcome.status


def _tls(certificate: str | None, key: str | None) -> tuple[str, str] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-cert and --tls-key belong together.")
    return certificate, key


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT` or `[IPv6]:PORT`. Raises `UsageError`."""
    from kafkalog.server.model import Address

    match = _HOST_PORT.fullmatch(text.strip())
    if match is None or int(match[3]) > 0xFFFF:
        raise UsageError(f"{text!r} is not HOST:PORT.", hint="For example 127.0.0.1:9092.")
    return Address(match[1] or match[2], int(match[3]))
