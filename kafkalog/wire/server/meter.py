"""What the server counts while it runs, and the Prometheus endpoint that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import UnsupportedError, UsageError
from kafkalog.model import Defect
from kafkalog.wire.server.model import ServeListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.errors import Event
    from kafkalog.wire.server.model import Address, Client

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Meter:
    """Counts nothing; subclasses do.

    Attributes:
        members: returns the number of members of all groups.
    """

    def __init__(self) -> None:
        self.members: Callable[[], int] = lambda: 0

    def connected(self) -> None:
        """Count a connection that begins."""

    def disconnected(self) -> None:
        """Count a connection that ends."""

    def answered(self, api: str, seconds: float, size: int) -> None:
        """Count a request, how long it took and the size of the response."""

    def met(self, defect: str) -> None:
        """Count damage that a fetch met, by its name."""

    def close(self) -> None:
        """End the endpoint."""


class PrometheusMeter(Meter):
    """Counts, and shows it at `http://HOST:PORT/metrics`.

    Raises:
        UnsupportedError: prometheus_client is missing.
        UsageError: it cannot listen there.
    """

    def __init__(self, address: Address) -> None:
        super().__init__()
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise UnsupportedError(
                "--metrics-listen needs prometheus_client.", hint="pip install 'kafkalog[data]'"
            ) from error
        registry = prometheus.CollectorRegistry()
        prefix: dict[str, Any] = {"namespace": "kafkalog", "subsystem": "serve",
                                  "registry": registry}  # fmt: skip
        self._open = prometheus.Gauge("connections", "Open connections", **prefix)
        self._opened = prometheus.Counter("connections_opened", "Connections so far", **prefix)
        self._requests = prometheus.Counter("requests", "Requests", ["api"], **prefix)
        self._sent = prometheus.Counter("sent_bytes", "Bytes of responses", ["api"], **prefix)
        self._seconds = prometheus.Histogram(
            "request_seconds", "From the request to the end of its response", ["api"],
            buckets=_SECONDS, **prefix,
        )  # fmt: skip
        self._defects = prometheus.Counter("defects", "Damage that was met", ["defect"], **prefix)
        gauge = prometheus.Gauge("group_members", "Members of all groups", **prefix)
        gauge.set_function(self._count_members)
        try:
            self._server, self._thread = prometheus.start_http_server(
                address.port, address.host, registry
            )
        except OSError as error:
            raise UsageError(f"Cannot listen on {address}: {error.strerror or error}.") from error

    def _count_members(self) -> int:
        return self.members()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def connected(self) -> None:
        self._open.inc()
        self._opened.inc()

    def disconnected(self) -> None:
        self._open.dec()

    def answered(self, api: str, seconds: float, size: int) -> None:
        self._requests.labels(api).inc()
        self._seconds.labels(api).observe(seconds)
        self._sent.labels(api).inc(size)

    def met(self, defect: str) -> None:
        self._defects.labels(defect).inc()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Metered(ServeListener):
    """Counts damage, and passes on all that another listener is to hear."""

    def __init__(self, listener: ServeListener, meter: Meter) -> None:
        self._listener = listener
        self._meter = meter

    def hear(self, event: Event) -> None:
        """Count damage, and pass everything on."""
        if isinstance(event, Defect):
            self._meter.met(event.reference)
        self._listener.hear(event)

    def started(self, address: Address) -> None:
        self._listener.started(address)

    def connected(self, client: Client) -> None:
        self._listener.connected(client)
