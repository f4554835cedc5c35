"""`kafkalog serve`: serve log directories to Kafka clients, without a broker."""

from __future__ import annotations

import re
import sys
from typing import Annotated

from kafkalog.errors import Event, UsageError
from kafkalog.files.topics import Topics
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
from kafkalog_cli.option_sets import BOUNDS, RUN, SELECT
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.session import session
from kafkalog_cli.values import parse_high_watermark, parse_rate

_HOST_PORT = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]*)):([0-9]{1,5})")


def serve(
    paths: opt.PathsArgument,
    listen: Annotated[str, opt.option(
        RUN, "--listen", metavar="HOST:PORT",
        help="Address to listen on; port 0 picks a free port.",
    )] = str(LISTEN),
    advertise: Annotated[str | None, opt.option(
        RUN, "--advertise", metavar="HOST:PORT",
        help="Address for clients to connect to, if it differs from --listen.",
    )] = None,
    topic: opt.TopicsOption = None,
    internal: opt.InternalOption = False,
    leftovers: Annotated[bool, opt.option(
        SELECT, "--leftovers",
        help="Also -delete and -stray directories, as orders.deleted-1a2b3c4d.",
    )] = False,
    high_watermark: opt.HighWatermarkOption = None,
    on_damage: Annotated[OnDamage, opt.option(
        BOUNDS, "--on-damage",
        help="At a damaged batch: return an error, or skip to the next sound batch.",
    )] = OnDamage.STOP,
    follow: opt.FollowOption = False,
    once: Annotated[bool, opt.option(
        RUN, "--once", help="Stop when clients have read every partition to its end.",
    )] = False,
    rate_limit: opt.RateLimitOption = None,
    max_connections: Annotated[int, opt.option(
        RUN, "--max-connections", min=1, max=10_000, metavar="N",
        help="Most connections at a time; one more closes a silent one, or is closed at once.",
    )] = CONNECTIONS_MAX,
    commits: Annotated[str | None, opt.option(
        RUN, "--commits", metavar="FILE",
        help="Keep committed offsets in FILE, one line of JSON per commit, instead of in memory.",
    )] = None,
    read_only_commits: Annotated[bool, opt.option(
        RUN, "--read-only-commits", help="Refuse commits of offsets.",
    )] = False,
    tls_cert: Annotated[str | None, opt.option(
        RUN, "--tls-cert", metavar="FILE", help="Use TLS, with this certificate (PEM).",
    )] = None,
    tls_key: Annotated[str | None, opt.option(
        RUN, "--tls-key", metavar="FILE", help="The certificate's private key (PEM).",
    )] = None,
    sasl_plain: Annotated[str | None, opt.option(
        RUN, "--sasl-plain", metavar="FILE",
        help="Require SASL/PLAIN, with the users in FILE: one USER=PASSWORD per line.",
    )] = None,
    metrics_listen: Annotated[str | None, opt.option(
        RUN, "--metrics-listen", metavar="HOST:PORT", help="Metrics for Prometheus.",
    )] = None,
) -> int:  # fmt: skip
    """Serve log directories to Kafka clients, read-only, without a broker.

    Any client can consume batches exactly as they are stored; writes are refused. Of several copies
    of a partition, the most recent one is served; a tier as another PATH adds what is in remote
    storage. Consumer groups start from the offsets that they had committed. SIGTERM or Ctrl-C stops
    the server. --rate-limit holds for all clients together.

    \b
    kafkalog serve /var/lib/kafka
    kafkalog serve /var/lib/kafka --listen 127.0.0.1:0 -t orders
    kafkalog serve /var/lib/kafka --high-watermark end --on-damage skip
    kafkalog serve /var/lib/kafka /mnt/tier/kafka-tiered-storage
    kafkalog serve /var/lib/kafka --commits offsets.ndjson --metrics-listen 127.0.0.1:9100
    """
    from kafkalog.wire.server.run import run_server

    if commits is not None and read_only_commits:
        raise UsageError(
            "--commits and --read-only-commits exclude each other.", hint="Give one of them."
        )
    options = ServeOptions(
        listen=parse_address(listen),
        advertise=None if advertise is None else parse_address(advertise),
        topics=None if not topic else Topics(topic),
        internal=internal,
        leftovers=leftovers,
        high_watermark=_watermark(high_watermark),
        on_damage=on_damage,
        follow=follow,
        once=once,
        rate=None if rate_limit is None else parse_rate(rate_limit),
        max_connections=max_connections,
        groups_file=commits,
        read_only_groups=read_only_commits,
        tls=_tls(tls_cert, tls_key),
        sasl_file=sasl_plain,
        metrics=None if metrics_listen is None else parse_address(metrics_listen),
    )
    outcome = Outcome()
    run_server(paths, options, _Shown(outcome))
    outcome.answers()
    return outcome.status


def _watermark(text: str | None) -> Watermark:
    found = parse_high_watermark(text)
    if isinstance(found, int):
        raise UsageError("A number is the high watermark of one partition.", hint="Give end.")
    return Watermark.CHECKPOINT if found is None else Watermark.END


def _tls(certificate: str | None, key: str | None) -> tuple[str, str] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-cert and --tls-key require each other.", hint="Give both.")
    return certificate, key


class _Shown(ServeListener):
    """Shows what a server reports: the address on stdout, everything else on stderr."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def hear(self, event: Event) -> None:
        self._outcome.hear(event)

    def started(self, address: Address) -> None:
        sys.stdout.write(f"bootstrap.servers={address}\n")
        sys.stdout.flush()  # scripts wait for the address

    def connected(self, client: Client) -> None:
        if not session().is_quiet:
            name = client.client_id or "a client"
            show_note(f"{name} ({client.software or 'unknown'}) from {client.host}")


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT` or `[IPv6]:PORT`. Raises `UsageError`."""
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None or int(match[3]) > 0xFFFF:
        raise UsageError(f"{text!r} is not HOST:PORT.", hint="For example 127.0.0.1:9092.")
    return Address(match[1] or match[2], int(match[3]))
