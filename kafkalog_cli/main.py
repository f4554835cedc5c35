"""Entry point: runs a command, turns every outcome into an exit status; the one try/except."""

from __future__ import annotations

import io
import os
import signal
import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process and exit.

    The reader of a pipe that goes away ends the process silently, as for any Unix filter.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    status = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # what is left to tear down takes longer than a small command


def run(argv: list[str]) -> int:
    """Run one command line in this process and return its exit status.

    Data goes to `sys.stdout.buffer`, words to `sys.stderr`.
    """
    import typer
    from typer.exceptions import TyperException

    from kafkalog.errors import KafkaLogError
    from kafkalog_cli.app import command_group
    from kafkalog_cli.render.diagnostics import show_error, show_words

    try:
        status = command_group().main(args=argv, prog_name="kafkalog", standalone_mode=False)
        sys.stdout.flush()
    except KafkaLogError as error:
        if "--debug" in argv:
            raise
        show_error(error)
        return error.exit_code
    except typer.Exit as stop:
        return stop.exit_code
    except SystemExit as stop:  # argparse, of kafka-dump-log
        return int(stop.code or 0)
    except TyperException as error:
        words = io.StringIO()
        error.show(words)  # type: ignore[attr-defined] # click's own method
        show_words(words.getvalue())
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    return int(status or 0)
