"""Entry point: runs a command and turns every outcome into an exit status."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.errors import UnsupportedError
    from kafkalog.io.paths.requests import Requests

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_BROKEN_PIPE = 128 + signal.SIGPIPE
_ASKS_WHAT_COMPLETES = "_KAFKALOG_COMPLETE"  # set by a shell
_OBJECTS_BETWEEN_COLLECTIONS = 50_000  # imports create 30,000 and hardly any garbage


def main() -> None:
    """Run the command line of this process and exit.

    If the reader of a pipe goes away, the process ends silently, like any Unix filter.
    """
    try:
        status = _run_process()
    except KeyboardInterrupt:  # while modules are loaded; `run` handles it from then on
        status = EXIT_INTERRUPTED
    os._exit(status)  # the teardown takes longer than a small command


def _run_process() -> int:
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    from kafkalog.io.jit.fast_path import on_unusable
    from kafkalog_cli.outcome import show_error, show_note
    from kafkalog_cli.standard_streams import close_streams, open_streams
    from kafkalog_cli.without_pandas import hide_pandas

    # Python ignores the signal, and would raise BrokenPipeError.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's own threads are never used
    hide_pandas()
    on_unusable.append(show_note)
    open_streams()
    run_line = _complete if _ASKS_WHAT_COMPLETES in os.environ else run
    status, lost = close_streams(run_line(sys.argv[1:]))
    if lost is not None:
        show_error(lost)
    if "kafkalog_cli.pager" in sys.modules:
        sys.modules["kafkalog_cli.pager"].end_pager()
    return status


def run(argv: list[str]) -> int:
    """Run one command line in this process and return its exit status.

    Data goes to `sys.stdout.buffer`, messages to `sys.stderr`. An unexpected exception ends with
    `INTERNAL_ERROR`, so that no script takes the output for an answer.
    """
    from kafkalog.errors import (
        INCOMPLETE,
        NO,
        CorruptDataError,
        KafkaLogError,
        NotFoundError,
        NothingFoundError,
        OutOfMemoryError,
        RefusedError,
        UnwritableError,
        as_internal_error,
    )
    from kafkalog.io.paths.reading_errors import unread_places
    from kafkalog.io.paths.requests import requests_counted
    from kafkalog.io.paths.retry import retrying
    from kafkalog_cli import outcome
    from kafkalog_cli.session import begin_session, session
    from kafkalog_cli.standard_streams import OutputError

    begin_session(argv)
    try:
        with (
            unread_places() as unread,
            outcome.failures_shown(),
            outcome.left_out_shown(),
            requests_counted() as requests,
            retrying(),
        ):
            status = _run_within(requests, argv)
        # Some reader passed over what it could not read: the answer may lack it, so that neither
        # yes nor no is sure.
        if status in (0, NO) and unread:
            outcome.show_error(unread.error())
            status = INCOMPLETE
    except KafkaLogError as error:
        # What is not found, or seems wrong, may be due to what could not be read.
        doubted = NotFoundError | NothingFoundError | CorruptDataError | RefusedError
        if isinstance(error, doubted) and unread:
            outcome.show_error(unread.error())
        if str(error) not in session().heard:
            outcome.show_error(error)
        status = outcome.status_of(error)
        is_unsure = status == NO and (unread or session().heard)
        return INCOMPLETE if is_unsure else status
    except SystemExit as stop:  # of argparse, for kafka-dump-log, or of click, for a broken pipe
        if isinstance(stop.__context__, BrokenPipeError):
            return _BROKEN_PIPE
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except OutputError:  # see `close_streams`
        return UnwritableError.exit_code
    except MemoryError:
        outcome.show_error(OutOfMemoryError())
        return OutOfMemoryError.exit_code
    except Exception as raised:  # noqa: BLE001 # anything: it is a failure of ours
        failure = _without_library(raised) or as_internal_error(raised)
        outcome.show_error(failure)
        return failure.exit_code
    return status


def _complete(argv: list[str]) -> int:
    """Print what completes the command line in the variables of a shell."""
    from kafkalog_cli.session import begin_session

    begin_session(argv)
    try:
        return _run_command(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    except Exception:  # noqa: BLE001 # a message about anything would spoil the line being typed
        return 1


def _without_library(raised: Exception) -> UnsupportedError | None:
    if not isinstance(raised, ModuleNotFoundError):
        return None
    import re
    from importlib.metadata import requires

    from kafkalog.errors import UnsupportedError

    name = (raised.name or "").partition(".")[0]
    # `all` names the other extras.
    lines = () if name == "kafkalog" else requires("kafkalog") or ()
    for line in lines:
        found = re.match(r"""([\w.-]+).*\bextra == ['"]([\w-]+)""", line)
        if found is not None and found[1].replace("-", "_") == name:
            failure = UnsupportedError(
                f"This needs {found[1]}, which is not installed.",
                hint=f"pip install 'kafkalog[{found[2]}]'",
            )
            failure.__cause__ = raised
            return failure
    return None


def _run_within(requests: Requests, argv: list[str]) -> int:
    """Run a command line; a refused request is why it failed, whatever it took that for."""
    from kafkalog.errors import INCOMPLETE, KafkaLogError
    from kafkalog_cli.outcome import show_requests

    try:
        status = _run_command(argv)
    except KafkaLogError as error:
        # What was done stays the more important news.
        if requests.is_exceeded and error.exit_code != INCOMPLETE:
            raise requests.error() from error
        raise
    finally:
        sys.stdout.flush()
        show_requests(requests)
    if requests.is_exceeded and status != INCOMPLETE:
        raise requests.error()
    return status


def _run_command(argv: list[str]) -> int:
    if argv[:1] == ["kafka-dump-log"]:  # has a parser of its own, which halves the start-up time
        from kafkalog.io.jit.fast_path import require_known_decoder
        from kafkalog_cli.commands.kafka_dump_log import dump_files

        require_known_decoder()
        return dump_files(argv[1:])
    from kafkalog.errors import UsageError

    if not argv and _ASKS_WHAT_COMPLETES not in os.environ:
        from kafkalog_cli.help import SHORT
        from kafkalog_cli.outcome import show_words

        show_words(SHORT)
        return UsageError.exit_code
    from formats.late_modules import imported_late

    with imported_late("ipaddress", "subprocess"):
        import typer
    from typer.exceptions import TyperException

    from kafkalog_cli.app import command_group

    try:
        group = command_group()
        status = group.main(args=argv, prog_name="kafkalog", standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except TyperException as error:
        from kafkalog_cli.usage import usage_error

        raise usage_error(error, argv) from error
    return int(status or 0)
