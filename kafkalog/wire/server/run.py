"""The server: listens, answers connections, and ends when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Final

from formats.message_schema import MessageError
from kafkalog.errors import (
    DestinationExistsError,
    KafkaLogError,
    Note,
    RequestsExceededError,
    UsageError,
    as_internal_error,
)
from kafkalog.io.wording import counted
from kafkalog.wire.server.apis import api_table
from kafkalog.wire.server.catalog import Catalog
from kafkalog.wire.server.connection import Connection, MalformedRequestError
from kafkalog.wire.server.door import Door
from kafkalog.wire.server.fetch import Fetch
from kafkalog.wire.server.group_apis import served_groups
from kafkalog.wire.server.metadata import Metadata
from kafkalog.wire.server.meter import Meter, Metered, PrometheusMeter
from kafkalog.wire.server.model import Address, Api, ServeListener, ServeOptions
from kafkalog.wire.server.offsets import Offsets
from kafkalog.wire.server.pace import Pace
from kafkalog.wire.server.quorum import QuorumApi
from kafkalog.wire.server.room import STRANGERS_SIZE, Room
from kafkalog.wire.server.security import SaslPlain, tls_context
from kafkalog.wire.server.transactions import TransactionApis

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.errors import Event, OnEvent
    from kafkalog.wire.server.catalog import ServedPartition
    from kafkalog.wire.server.configs import Configs
    from kafkalog.wire.server.door import Visit
    from kafkalog.wire.server.model import Answer, Client, Fields

_LAST_RESPONSE_SECONDS: Final = 1
_CLIENTS_NAMED_MAX: Final = 1000
_WILDCARDS: Final = ("0.0.0.0", "::", "")  # noqa: S104 # names them, binds nothing


class AddressInUseError(DestinationExistsError):
    """Something else listens on the address."""

    reference = "address-in-use"


class Server:
    """Serves what a catalog lists. Nothing is written."""

    def __init__(
        self,
        catalog: Catalog,
        options: ServeOptions,
        listener: ServeListener,
        meter: Meter | None = None,
    ) -> None:
        self.catalog = catalog
        self.options = options
        self.listener = listener
        self.pace = Pace(options.rate)
        self.address = options.listen
        self.meter = meter or Meter()
        self._guard = None if options.sasl_file is None else SaslPlain.from_file(options.sasl_file)
        self._tls = None if options.tls is None else tls_context(*options.tls)
        self._opened = contextlib.AsyncExitStack()
        self._door = Door(self._serve, options.max_connections, self._tls, listener.hear)
        self._room, self._strangers_room = Room(), Room(STRANGERS_SIZE)
        self._configs: Configs | None = None
        self._clients: set[tuple[str, str | None, str]] = set()
        self._stopped = asyncio.Event()
        self._unread = {
            (topic.name, index) for topic in catalog.topics.values() for index in topic.partitions
        }

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            AddressInUseError: something else listens there.
            UsageError: there is no such address on this machine.
            KafkaLogError: see `served_groups`.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await self._start()
        except BaseException:  # raised again: what was opened is closed, even after Ctrl-C
            await self._opened.aclose()
            raise

    async def _start(self) -> None:
        options = self.options
        groups, coordinator = await self._opened.enter_async_context(
            served_groups(self.catalog, options, self.listener)
        )
        self.meter.members = lambda: coordinator.member_count
        host, port = options.listen
        try:
            bound = await self._door.bind(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUseError(
                    f"Something else listens on {self.options.listen}.",
                    hint="--listen HOST:PORT, port 0 takes a free one.",
                ) from error
            raise UsageError(f"Cannot listen on {self.options.listen}: {error}.") from error
        self.address = Address(host, bound)  # answers name the port
        advertised = self.options.advertise
        if advertised is None:
            advertised = Address(_reachable(host), self.address.port)
        self.advertised = advertised
        self._apis = api_table(self.catalog.cluster_id, [
            *Metadata(self.catalog, advertised).apis(),
            *Offsets(self.catalog).apis(),
            *Fetch(self.catalog, advertised, self.options, self._reached).apis(),
            *groups.apis(),
            *TransactionApis(self.catalog, self.listener, follow=options.follow).apis(),
            *QuorumApi(self.catalog, self.listener).apis(),
            Api("DescribeConfigs", self._describe_configs),
            *([] if self._guard is None else self._guard.apis()),
        ])  # fmt: skip
        self._door.open()
        if self.catalog.left_out:
            what = counted(self.catalog.left_out, "internal partition")
            self.listener.hear(Note(f"{what} left out; --internal includes them"))
        if options.is_open_to_others:
            words = f"Anyone who can connect to {self.address} can read everything"
            self.listener.hear(Note(f"{words}: there is no TLS and no SASL.", is_warning=True))
        self.listener.started(advertised)

    def stop(self) -> None:
        """Tell the server to end: from its own thread, or by `loop.call_soon_threadsafe`."""
        self._stopped.set()

    async def run(self) -> None:
        """Serve until `stop` is called; then end the connections."""
        async with self._opened:
            await self._stopped.wait()
            self._door.close()
            await self._door.end_all()

    async def _describe_configs(self, request: Fields, version: int, client: Client) -> Answer:
        """Answer DescribeConfigs; what that needs is loaded when somebody asks."""
        if self._configs is None:
            from kafkalog.wire.server.configs import Configs

            self._configs = Configs(self.catalog, self.listener)
        return await self._configs.describe_configs(request, version, client)

    def _identified(self, client: Client) -> None:
        who = (client.host, client.client_id, client.software)
        if who not in self._clients and len(self._clients) < _CLIENTS_NAMED_MAX:
            self._clients.add(who)
            self.listener.connected(client)

    def _reached(self, partition: ServedPartition) -> None:
        """Note that a client has read a partition to its end; called in any thread."""
        if self.options.once:
            self._unread.discard((partition.topic, partition.index))
            if not self._unread:
                self._loop.call_soon_threadsafe(self._stop_soon)

    def _stop_soon(self) -> None:
        self._loop.call_later(_LAST_RESPONSE_SECONDS, self.stop)

    async def _serve(self, visit: Visit) -> None:
        reader, writer = visit.reader, visit.writer
        self.meter.connected()
        try:
            # A client that has gone already has no address.
            if writer.get_extra_info("peername") is not None:
                connection = Connection(
                    reader, writer, self._apis, self.pace, self._room, self._strangers_room,
                    self._identified, partial(self._door.know, visit), self.meter, self._guard,
                    by_kernel=self.options.by_kernel,
                )  # fmt: skip
                await connection.run()
        except (MalformedRequestError, MessageError, OSError, asyncio.CancelledError):
            pass  # the end of this connection
        except RequestsExceededError:
            self.stop()
        except KafkaLogError as error:
            self.listener.hear(error)
        except Exception as error:  # noqa: BLE001 # costs one connection, never the server
            self.listener.hear(as_internal_error(error))
        finally:
            self.meter.disconnected()
            # What a client does not take would hold up the end.
            if self._stopped.is_set() or visit.is_shut_out:
                writer.transport.abort()
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()


def serve(
    *paths: str | os.PathLike[str],
    options: ServeOptions | None = None,
    on_event: OnEvent | None = None,
) -> None:
    """Serve the logs at the paths to Kafka clients, until SIGTERM or SIGINT. Nothing is written.

    Args:
        paths: log directories, partition directories, and parents of log directories.
        options: what is served, where and how.
        on_event: is passed paths and partitions that fail, damage once per place, and notes.

    Raises:
        AddressInUseError: something else listens there.
        UsageError: a topic is not there, or the address is none of this machine.
        KafkaLogError: no path can be listed, or see `served_groups` and `PrometheusMeter`.
    """

    class Passing(ServeListener):
        """Passes everything on."""

        def hear(self, event: Event) -> None:
            if on_event is not None:
                on_event(event)

    run_server([os.fspath(path) for path in paths], options or ServeOptions(), Passing())


def run_server(paths: Iterable[str], options: ServeOptions, listener: ServeListener) -> None:
    """Do what `serve` describes; the listener also hears of the start and of clients."""
    meter = Meter() if options.metrics is None else PrometheusMeter(options.metrics)
    listener = Metered(listener, meter)

    async def run() -> None:
        catalog = Catalog(paths, options, listener)
        server = Server(catalog, options, listener, meter)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.stop)
        await server.start()
        await server.run()

    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a client that went away is no signal
    try:
        asyncio.run(run())
    finally:
        signal.signal(signal.SIGPIPE, before)
        meter.close()


def _reachable(host: str) -> str:
    import socket

    return socket.gethostname() if host in _WILDCARDS else host
