"""`kafkalog serve`: serve log directories to Kafka clients, without a broker."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from kafkalog.errors import Event, UsageError
from kafkalog.wire.server.model import (
    CONNECTIONS_MAX,
    LISTEN,
    Address,
    Client,
    OnDamage,
    ServeListener,
    ServeOptions,
    Watermark,
)
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note

_HOST_PORT = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]*)):([0-9]{1,5})")


def serve(
    paths: opt.PathsArgument,
    listen: Annotated[str, typer.Option(
        "--listen", metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port.",
    )] = str(LISTEN),
    advertise: Annotated[str | None, typer.Option(
        "--advertise", metavar="HOST:PORT",
        help="Address for clients to connect to, if it differs from --listen.",
    )] = None,
    topic: opt.TopicsOption = None,
    internal: opt.InternalOption = False,
    leftovers: Annotated[bool, typer.Option(
        "--leftovers",
        help="Also serve -delete and -stray directories, as orders.deleted-1a2b3c4d.",
    )] = False,
    high_watermark: Annotated[Watermark, typer.Option(
        "--high-watermark",
        help="Serve up to the high watermark that the broker recorded, or to the log end.",
    )] = Watermark.CHECKPOINT,
    on_damage: Annotated[OnDamage, typer.Option(
        "--on-damage", help="At a damaged batch: return an error, or skip to the next sound batch.",
    )] = OnDamage.STOP,
    follow: Annotated[bool, typer.Option(
        "--follow", help="Also serve what a running broker appends.",
    )] = False,
    once: Annotated[bool, typer.Option(
        "--once", help="Stop when clients have read every partition to its end.",
    )] = False,
    rate_limit: Annotated[str | None, typer.Option(
        "--rate-limit", metavar="SIZE",
        help="Send at most SIZE per second to all clients together (50MiB).",
    )] = None,
    max_connections: Annotated[int, typer.Option(
        "--max-connections", min=1, max=10_000, metavar="N",
        help="Most connections at a time; one more closes a silent one, or is closed at once.",
    )] = CONNECTIONS_MAX,
    groups: Annotated[str | None, typer.Option(
        "--groups", metavar="FILE",
        help="Keep committed offsets in FILE, one line of JSON per commit, instead of in memory.",
    )] = None,
    read_only_groups: Annotated[bool, typer.Option(
        "--read-only-groups", help="Refuse commits of offsets.",
    )] = False,
    tls_cert: Annotated[str | None, typer.Option(
        "--tls-cert", metavar="FILE", help="Use TLS, with this certificate (PEM).",
    )] = None,
    tls_key: Annotated[str | None, typer.Option(
        "--tls-key", metavar="FILE", help="The certificate's private key (PEM).",
    )] = None,
    sasl_plain: Annotated[str | None, typer.Option(
        "--sasl-plain", metavar="FILE",
        help="Require SASL/PLAIN, with the users in FILE: one USER=PASSWORD per line.",
    )] = None,
    metrics: Annotated[str | None, typer.Option(
        "--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus at this address.",
    )] = None,
    quiet: Annotated[bool, typer.Option(
        "-q", "--quiet", help="Do not report the clients that connect.",
    )] = False,
) -> int:  # fmt: skip
    """Serve log directories to Kafka clients, read-only, without a broker.

    Any client can consume batches exactly as they are stored; writes are refused. Of several copies
    of a partition, the most recent one is served; a tier as another PATH adds what is in remote
    storage. Consumer groups start from the offsets that they had committed. SIGTERM or Ctrl-C stops
    the server. The exit status is 1 if clients met damage.

    \b
    kafkalog serve /var/lib/kafka
    kafkalog serve /var/lib/kafka --listen 127.0.0.1:0 --topic orders
    kafkalog serve /var/lib/kafka --high-watermark end --on-damage skip
    kafkalog serve /var/lib/kafka /mnt/tier/kafka-tiered-storage
    kafkalog serve /var/lib/kafka --groups offsets.ndjson --metrics 127.0.0.1:9100
    """
    from kafkalog.wire.server.run import run_server

    options = ServeOptions(
        listen=parse_address(listen),
        advertise=None if advertise is None else parse_address(advertise),
        topics=None if topic is None else tuple(topic),
        internal=internal,
        leftovers=leftovers,
        high_watermark=high_watermark,
        on_damage=on_damage,
        follow=follow,
        once=once,
        rate=None if rate_limit is None else opt.parse_rate(rate_limit),
        max_connections=max_connections,
        groups_file=groups,
        read_only_groups=read_only_groups,
        tls=_tls(tls_cert, tls_key),
        sasl_file=sasl_plain,
        metrics=None if metrics is None else parse_address(metrics),
    )
    if groups is not None and read_only_groups:
        raise UsageError(
            "--groups and --read-only-groups exclude each other.", hint="Give one of them."
        )
    outcome = Outcome()
    run_server(paths, options, _Shown(outcome, quiet=quiet))
    return outcome.status


def _tls(certificate: str | None, key: str | None) -> tuple[str, str] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-cert and --tls-key require each other.", hint="Give both.")
    return certificate, key


class _Shown(ServeListener):
    """Shows what a server reports: the address on stdout, everything else on stderr."""

    def __init__(self, outcome: Outcome, *, quiet: bool) -> None:
        self._outcome = outcome
        self._quiet = quiet

    def hear(self, event: Event) -> None:
        self._outcome.hear(event)

    def started(self, address: Address) -> None:
        sys.stdout.write(f"bootstrap.servers={address}\n")
        sys.stdout.flush()  # scripts wait for the address

    def connected(self, client: Client) -> None:
        if not self._quiet:
            name = client.client_id or "a client"
            show_note(f"{name} ({client.software or 'unknown'}) from {client.host}")


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT` or `[IPv6]:PORT`. Raises `UsageError`."""
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None or int(match[3]) > 0xFFFF:
        raise UsageError(f"{text!r} is not HOST:PORT.", hint="For example 127.0.0.1:9092.")
    return Address(match[1] or match[2], int(match[3]))
