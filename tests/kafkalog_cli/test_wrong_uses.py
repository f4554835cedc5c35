"""What a newcomer gets wrong: no traceback, one clear sentence, a hint, and the right status."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from kafkalog_cli.app import ALIASES, all_commands
from kafkalog_cli.usage import OPTIONS_OF_PEERS
from tests.checkout import ROOT
from tests.kafkalog_cli.test_statuses import held

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]


class Wrong(NamedTuple):
    """A wrong use: the command line, its status, and words of the error and of the hint."""

    line: str
    status: int
    error: str
    hint: str = ""


SEGMENT = "log/orders-0/00000000000000000250.log"
NO_DIRECTORY = "The directory holds neither partitions nor segments."
NO_NAME = "Kafka gives no file this name."
A_LOG_DIRECTORY = "Give a log directory (an entry of log.dirs)"
MISSING = "No such file or directory."
INSIDE = "The destination lies inside the source."
ORDRES = "No partition of the topic ordres is here."
ORDERS = "Did you mean orders? Topics are customers, orders, payments."
NO_RANGE = "in ms and 2024-01-01T00:04:20.000Z in s."
COMMANDS = (
    Wrong("no-such-command", 2, "There is no command 'no-such-command'.", "--help` lists"),
    Wrong("verfy log", 2, "There is no command 'verfy'.", "Did you mean verify?"),
    Wrong("lss log", 2, "There is no command 'lss'.", "Did you mean ls?"),
    Wrong("dumpsegment log", 2, "There is no command", "Did you mean dump-segment?"),
    Wrong("dump-log log", 2, "There is no command 'dump-log'.", "dump"),
    Wrong("cat log/orders-0", 2, "no command 'cat'", "kafkalog dump-segment log/orders-0"),
    Wrong("consume log -t orders", 2, "no command", "kafkalog dump-segment log -t orders"),
    Wrong("tail log/orders-0", 2, "no command 'tail'", "kafkalog dump-segment log/orders-0"),
    Wrong("grep log -k x", 2, "There is no command 'grep'.", "kafkalog find log -k x"),
    Wrong("fsck log", 2, "There is no command 'fsck'.", "kafkalog verify log"),
    Wrong("repair log", 2, "There is no command 'repair'.", "kafkalog recover log"),
    Wrong("topics log", 2, "There is no command 'topics'.", "kafkalog ls log"),
    Wrong("lag log", 2, "There is no command 'lag'.", "kafkalog groups log"),
    Wrong("where log --group x", 2, "no command 'where'", "kafkalog groups log --group x"),
    Wrong("audit-compaction log", 2, "no command", "kafkalog verify --compaction log"),
    Wrong("help", 2, "There is no command 'help'.", "`kafkalog --help` lists the commands."),
    Wrong("log-dir", 2, "There is no command 'log-dir'.", "lists the commands."),
    Wrong("--no-such-option", 2, "There is no option --no-such-option.", "shows the usage."),
    Wrong("--debug=1 ls", 2, "'--debug' does not take a value.", "shows the usage."),
    Wrong("kafka-dump-log", 2, "arguments are required: --files.", "shows the usage."),
    Wrong("kafka-dump-log log", 2, "arguments are required: --files.", "shows the usage."),
    Wrong("kafka-dump-log --files", 2, "--files", "shows the usage."),
    Wrong("kafka-dump-log --files x --no-such", 2, "--no-such", "shows the usage."),
    Wrong("kafka-dump-log --files x --max-bytes many", 2, "'many'", "shows the usage."),
    Wrong("kafka-dump-log --files x --deep-iteration=2", 2, "--deep-iteration", "the usage."),
)
PATHS = (
    Wrong("dump-segment", 2, "PATH is missing.", "`kafkalog dump-segment --help`"),
    Wrong("metadata x y z", 2, "Too many arguments: y z.", "shows the usage."),
    Wrong("ls nowhere", 2, MISSING),
    Wrong("dump-segment log/orders-1", 2, MISSING, "Did you mean orders-0?"),
    Wrong("verify ''", 2, MISSING, "Is a variable of the shell empty?"),
    Wrong("verify lgo", 2, MISSING, "Did you mean log?"),
    Wrong("ls dangling", 2, MISSING),
    Wrong("ls orders log", 8, MISSING, "A topic is chosen by -t orders."),
    Wrong("verify log orders", 8, MISSING, "A topic is chosen by -t orders."),
    Wrong("dump-segment log 5 -n 1", 8, MISSING, "`kafkalog lookup-offset PATH N`"),
    Wrong("ls loop", 3, "Too many levels of symbolic links."),
    Wrong("verify locked", 3, "Permission denied."),
    Wrong("ls empty", 3, NO_DIRECTORY, A_LOG_DIRECTORY),
    Wrong("find empty -k x", 3, NO_DIRECTORY, A_LOG_DIRECTORY),
    Wrong("groups empty", 3, NO_DIRECTORY, A_LOG_DIRECTORY),
    Wrong("transactions empty", 3, NO_DIRECTORY, A_LOG_DIRECTORY),
    Wrong("metadata empty", 3, NO_DIRECTORY, A_LOG_DIRECTORY),
    Wrong("profile empty", 3, NO_DIRECTORY, A_LOG_DIRECTORY),
    Wrong("serve empty --listen 127.0.0.1:0", 3, NO_DIRECTORY, A_LOG_DIRECTORY),
    Wrong("replay empty", 3, NO_DIRECTORY, A_LOG_DIRECTORY),
    Wrong("recover other", 3, NO_DIRECTORY, A_LOG_DIRECTORY),
    Wrong("dump-segment text.txt", 3, NO_NAME, "a copy needs the original name."),
    Wrong("verify copy.log.gz", 3, NO_NAME, "Segments are called 00000000000000000000.log"),
    Wrong("diff text.txt log", 3, NO_NAME, "a copy needs the original name."),
    Wrong("anatomy log", 2, "This is a directory.", "FILE@POSITION"),
    Wrong("simulate-roll log", 2, "This is a log directory", "`kafkalog ls log` lists them."),
    Wrong("groups log/orders-0", 2, "no partition of __consumer_offsets", "all brokers"),
    Wrong("metadata log/orders-0", 2, "There is no __cluster_metadata-0 here.", "first log dir"),
    Wrong(f"rebuild-index {SEGMENT[:-4]}.index", 2, "nor the log of a segment.", ".log file."),
    Wrong("undo log", 3, "There is no journal.", "`kafkalog undo --list DIR` lists"),
    Wrong("undo nowhere --apply", 2, "There is no journal.", "was given as --backup"),
    Wrong("ls foo://bucket/x", 2, "foo:// is not supported.", "A path, or s3://"),
    Wrong("ls @nowhere", 2, "There is no place @nowhere.", "config.toml"),
    Wrong("recover s3://bucket/x", 2, "This works on local files", "Copy the log directory"),
    Wrong("diff log", 2, "Name at least two places.", "kafkalog diff BROKER_1 BROKER_2"),
)
SELECTING: Final = (
    "ls log",
    "dump-segment log",
    "lookup-offset log 5",
    "find log -k x",
    "verify log",
    "diff log log",
    "profile log",
    "recover log",
    "salvage log",
    "compact log",
    "retention log",
    "retention log --apply -y",
    "rebuild-index log",
    "export log",
    "replay log",
    "sql log -c 'select * from records'",
)
"""The commands with -t and -p, which look for partitions."""
NAMES = (
    *(
        Wrong(f"{line} -t ordres", 1, ORDRES, ORDERS)
        for line in (*SELECTING, "resurrect log", "serve log --listen 127.0.0.1:0")
    ),
    *(
        Wrong(f"{line} {words}", 1, "No partition 99 is here.", f"Partitions are {known}.")
        for line in SELECTING
        for words, known in (("-p 99", "0, 1"), ("-t orders -p 99", "0"))
    ),
    Wrong("groups log -t orders -p 99", 1, "no committed offset of partition 99."),
    Wrong("metadata log -t ordres", 1, "There is no topic 'ordres'. Did you mean orders?"),
    Wrong("groups log -t ordres", 1, "topic 'ordres'. Did you mean orders?"),
    Wrong("groups log --group bilings", 1, "no group 'bilings'. Did you mean billing?"),
    Wrong("groups log --group ''", 1, "There is no group ''."),
    Wrong("transactions log --transactional-id x", 1, "There is no transactional id 'x'."),
    Wrong("find log lost -t ordres -k x", 8, ORDRES, ORDERS),
    Wrong("ls log -t orders,payments", 1, "No partition of the topic", "Repeat -t for each"),
    Wrong("ls log -t ''", 1, "No partition of the topic '' is here.", "Topics are"),
    Wrong("verify log -p 7-9", 1, "No partition 7-9 is here.", "Partitions are 0, 1."),
    Wrong("lookup-offset log/orders-0 5000", 1, ""),
    Wrong("anatomy log/orders-0@99999", 1, "out of range: the log has 0 to 999."),
    Wrong("find log -k nobody", 1, "nothing found in 3 partitions"),
    Wrong("metadata log --cat /nosuch", 1, "There is no '/nosuch' in the tree."),
    Wrong("explain nosuch", 2, "There is no reference 'nosuch'.", "lists them all."),
    Wrong("explain nosuch --schema", 2, "No row has the type 'nosuch'.", "There are"),
)
OPTIONS = (
    Wrong(
        "ls log --fromat csv",
        2,
        "There is no option --fromat.",
        "Did you mean --format? `kafkalog ls --help` shows the usage.",
    ),
    Wrong("ls log --topics orders", 2, "There is no option --topics.", "Did you mean --topic?"),
    Wrong("transactions log -t x", 2, "There is no option -t.", "shows the usage."),
    *(
        Wrong(
            f"{line} {option}",
            2,
            f"There is no option {option}.",
            OPTIONS_OF_PEERS.get(f"{line.split()[0]} {option}") or OPTIONS_OF_PEERS[option],
        )
        for line, option in (
            ("dump-segment log", "--from-beginning"),
            ("dump-segment log", "--max-messages"),
            ("dump-segment log", "--offset"),
            ("groups log", "--bootstrap-server"),
            ("dump-segment log", "--print-data-log"),
            ("ls log", "--json"),
            ("recover log", "--force"),
            ("compact log", "--in-place"),
            ("export log", "-n"),
            ("export log", "--apply"),
            ("salvage log", "--apply"),
        )
    ),
    Wrong("dump-segment log --limit", 2, "--limit needs a value.", "shows the usage."),
    Wrong("dump-segment log --control=1", 2, "'--control' does not take a value.", "the usage."),
    Wrong("dump-segment log -n five", 2, "--limit: 'five' is not an integer.", "the usage."),
    Wrong("dump-segment log --limit -1", 2, "--limit: '-1' is less than 0.", "the usage."),
    Wrong("dump-segment log --from-offset -5", 2, "'-5' is less than 0.", "the usage."),
    Wrong("dump-segment log --from-offset 12:00", 2, "'12:00' is not an integer.", "the usage."),
    Wrong("dump-segment log --from-offset 9 --to-offset 5", 2, "--from-offset is after"),
    Wrong("export log --from-time -1h --to-time -2h", 2, "--from-time is after --to-time."),
    Wrong("dump-segment log --from-time 1704067460", 2, NO_RANGE, "Write @1704067460 or"),
    Wrong("groups log --at 5", 2, "1970-01-01T00:00:05.000Z in s.", "Write @5 or 5ms."),
    Wrong("find log -k x --to-time yesterdy", 2, "'yesterdy' is not a time.", "ISO 8601"),
    Wrong("find log -k x --to-time 2024-13-45", 2, "is not a time.", "Give ISO 8601"),
    Wrong("find log -k x --to-time ''", 2, "'' is not a time.", "Give ISO 8601"),
    Wrong("export log --to x --append --every 5", 2, "'5' is not a duration.", "90s"),
    Wrong("recover log --scan-rate fast", 2, "'fast' is not a size.", "512MiB"),
    Wrong("verify log --sample 150%", 2, "'150%' is not a share.", "5%"),
    Wrong("du log --disk-size 1G", 2, "--disk-size requires --forecast.", "Add --forecast."),
    Wrong("quorum log --properties none", 2, MISSING),
    Wrong("quorum log --standalone one", 2, "'one' is not a controller.", "1@controller1:9093"),
    Wrong(
        "quorum log --to new", 2, "--to requires --standalone or", "Which controller leads first?"
    ),
    Wrong("quorum log --allow-loss", 2, "--allow-loss requires --standalone or --voters."),
    Wrong("quorum log --standalone 1 --voters 1", 2, "exclude each other."),
    Wrong("quorum log --voters 1@a:1,1@b:1", 2, "Controller 1 is given twice."),
    Wrong("quorum log --voters 1@a:1,2@a:1", 2, "Two controllers would listen at a:1."),
    Wrong(
        "quorum log --voters 1@a:1,2@b:1", 4, "voters of this quorum are static", "on all nodes."
    ),
    Wrong("quorum log --standalone 2", 4, "The voters here can elect a leader: 1.", "Start them."),
    Wrong("quorum log/orders-0", 2, "There is no metadata log here.", "each has __cluster_metad"),
    Wrong("ls log -p x", 2, "'x' is not a partition.", "Give N or A-B: -p 3, -p 0-7."),
    Wrong("ls log -p 5-2", 2, "'5-2' is not a partition.", "Give N or A-B"),
    Wrong("ls log --tz Mars/Base", 2, "'Mars/Base' is not a time zone.", "Europe/Berlin"),
    Wrong("ls log -o yaml", 2, "'yaml' is not one of 'table', 'line', 'ndjson'", "the usage."),
    Wrong(
        "verify log --level fast",
        2,
        "--level: 'fast' is not one of 'quick', 'standard', 'deep'.",
        "shows the usage.",
    ),
    Wrong("ls log -x -o csv", 2, "-o, -x and -f exclude each other.", "Give one of them."),
    Wrong("ls log --columns nosuch", 2, "There is no column 'nosuch'.", "There are"),
    Wrong("ls log -f '{nosuch}'", 2, "There is no field 'nosuch'.", "There are"),
    Wrong("ls log -f '{topic'", 2, "A '{' in the template stands alone.", "Write {{."),
    Wrong("find log --where 'value.cents >'", 2, "The condition has an error", "An example"),
    Wrong("find log --where \"key = 'x'\"", 2, "The condition has an error", "Write =="),
    Wrong("find log --where 'nosuch == 1'", 2, "There is no field nosuch", "value.nosuch"),
    Wrong("find log --key-regex '['", 2, "'[' is not a regular expression"),
    Wrong("find log", 2, "Say what to find.", "--key, --key-regex"),
    Wrong("find log user-48", 2, "Say what to find.", "--key, --key-regex"),
    Wrong("find log -k 0xZZ", 2, "'0xZZ' is not hexadecimal."),
    Wrong("lookup-offset log/orders-0", 2, "Nothing to look up.", "Give offsets"),
    Wrong("lookup-offset 5 log/orders-0", 2, "Nothing to look up.", "Give offsets"),
    Wrong("dump-segment log --batches -k x", 2, "--key is about records.", "Leave out"),
    Wrong("find log -k x --value-format avr", 2, "'avr' is not a format of values.", "avro"),
    Wrong("find log -k x --value-format avro", 2, "needs a schema.", "--registry PLACE"),
    Wrong("find log -k x --value-format avro --value-schema none.avsc", 2, MISSING),
    Wrong("find log -k x --value-format avro --value-schema text.txt", 2, "not an Avro schema"),
    Wrong(
        "find log -k x --key-format text --value-format text --registry none",
        2,
        "--registry is about data with schemas.",
        "--value-format auto",
    ),
    Wrong("verify log --seed 3", 2, "--seed requires --sample.", "--sample 5% --seed 3."),
    Wrong("verify log --compaction --original lost", 2, MISSING),
    Wrong("sql log -c ''", 2, "There is no query.", "kafkalog sql PATH -c QUERY"),
    Wrong("sql log -t nosuch -c 'select * from groups'", 1, "No partition of the topic nosuch"),
    Wrong("sql log -p 99 -c 'select * from topics'", 1, "No partition 99 is here."),
    Wrong("sql log -c 'select * from orders'", 2, "orders does not exist.", "There are records"),
    Wrong("sql 'select 1' log", 2, MISSING, "-c gives a query"),
    Wrong("retention log --config retention.msx=7", 2, "not a known config.", "retention.ms"),
    Wrong("retention log --config retention.ms=7d", 2, "it is no number of the type long."),
    Wrong("retention log --config retention.ms", 2, "is not NAME=VALUE.", "--config retention.ms="),
    Wrong("simulate-retention log --apply", 2, "changes nothing.", "`kafkalog retention`"),
    Wrong("serve log --listen nohost", 2, "'nohost' is not HOST:PORT.", "127.0.0.1:9092"),
    Wrong("explain --fromat csv", 2, "There is no option --fromat.", "--format?"),
)
CHANGES = (
    Wrong("compact log --apply --to x", 2, "--apply and --to exclude each other.", "one of them"),
    Wrong("compact log --backup b", 2, "--backup requires --apply.", "only the plan"),
    Wrong(
        "recover log --apply --backup log",
        2,
        "The backup cannot be in a log directory",
        "Choose a directory next to",
    ),
    Wrong("resurrect log --apply", 2, "--apply in place requires --backup.", "kafkalog undo"),
    Wrong("salvage log --to log/new", 2, INSIDE, "Choose a directory elsewhere."),
    Wrong("export log --to log", 2, INSIDE, "Choose a directory elsewhere."),
    Wrong("resurrect log --to log", 2, INSIDE, "Choose a directory elsewhere."),
    Wrong("salvage log --to text.txt", 4, "It exists", "Choose another name"),
    Wrong("export log --to text.txt", 4, "It exists, and is not a directory.", "another name"),
    Wrong("export log --to other", 4, "is not an export of kafkalog.", "another directory"),
    Wrong("report log --to text.txt", 4, "It already exists.", "Choose another name"),
    Wrong("report log --to lost/x.html", 4, "cannot be written", "Make the directory around"),
    Wrong("report log", 2, "--to is missing.", "`kafkalog report --help`"),
    Wrong("export log --to x --flatten", 2, "--flatten is about decoded values.", "--registry"),
    Wrong(
        "export log -t orders --value-format json --flatten",
        2,
        "--flatten is about fields, and the values have none.",
        "Leave it out.",
    ),
    Wrong("export log --to x --every 5m", 2, "--every requires --append.", "Add it"),
    Wrong("export log --to x --accept all", 2, "'all' is nothing to accept.", "damage"),
    Wrong("export log --to x --set compresion=zstd", 2, "no setting 'compresion'", "compression"),
    Wrong("replay log --apply", 2, "Say which cluster gets the records.", "--bootstrap HOST:PORT"),
    *(
        Wrong(f"{line} running --apply -y", 4, "A broker is running", "")
        for line in ("recover", "compact", "retention", "rebuild-index")
    ),
)
TABLE = (*COMMANDS, *PATHS, *NAMES, *OPTIONS, *CHANGES)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the wrong uses are tried."""
    root = tmp_path_factory.mktemp("wrong")
    for name in ("log", "running"):
        shutil.copytree(ROOT / "examples" / "log-dir", root / name)
    (root / "empty").mkdir()
    (root / "other").mkdir()
    (root / "other" / "file").write_text("x")
    (root / "text.txt").write_text("hello\n")
    (root / "copy.log.gz").write_bytes(b"\x1f\x8b")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("gone")
    return root


@pytest.fixture
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in the place, whose `locked` nobody may read, not even root."""
    from kafkalog.io.paths import file_system

    monkeypatch.chdir(place)
    stat = file_system.stat

    def refused(path: str) -> os.stat_result:
        if path == "locked":
            raise PermissionError(13, "Permission denied", path)
        return stat(path)

    monkeypatch.setattr(file_system, "stat", refused)


def mistakes(wrong: Wrong, done: Result) -> list[str]:
    """Return what is not as it should be."""
    hints = " ".join(re.findall(r"^hint: (.*)$", done.stderr, re.MULTILINE))
    errors = re.findall(r"^× .*$", done.stderr, re.MULTILINE)
    found = []
    if done.status != wrong.status:
        found.append(f"status {done.status}")
    if "Traceback" in done.stderr or "internal error" in done.stderr:
        found.append("a traceback")
    if wrong.error not in done.stderr:
        found.append("the error")
    if wrong.hint not in hints:
        found.append("the hint")
    if len(errors) > 1 + (wrong.status == 8) or len(set(errors)) < len(errors):
        found.append("one sentence")
    return found


@pytest.mark.usefixtures("_inside")
def test_each_wrong_use_is_explained(place: Path, tmp_path: Path, kafkalog: Run) -> None:
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}
    failed = []
    with held(place / "running", tmp_path / "broker"):
        for wrong in TABLE:
            done = kafkalog(*shlex.split(wrong.line))
            if found := mistakes(wrong, done):
                failed.append((wrong.line, found, done.stderr))
    assert not failed, "\n".join(f"{line}: {found}\n{said}" for line, found, said in failed)
    after = {path: path.stat().st_mtime_ns for path in before if path.exists()}
    assert {one for one in before if before[one] != after.get(one)} <= {place / "running" / ".lock"}


@pytest.mark.parametrize("command", ["compact", "retention", "recover", "rebuild-index"])
def test_what_is_named_is_in_one_of_the_log_directories(
    tmp_path: Path, kafkalog: Run, command: str
) -> None:
    """A broker spreads the partitions of a topic over its log directories."""
    first, second = tmp_path / "1", tmp_path / "2"
    for log_dir, others in ((first, "customers-0"), (second, "orders-0")):
        shutil.copytree(ROOT / "examples" / "log-dir", log_dir)
        shutil.rmtree(log_dir / others)
    shutil.rmtree(second / "__consumer_offsets-1")
    for words in (("-t", "orders"), ("-t", "__consumer_offsets", "-p", "1")):
        plans = [
            kafkalog(command, *places, *words, "-o", "ndjson").stdout.splitlines()[:-1]
            for places in ((first,), (first, second))
        ]  # without the totals, which have the clock
        assert plans[0] == plans[1] != [], words
        assert kafkalog(command, first, second, *words, "--apply", "-y").status == 0, words
    backup = tmp_path / "backup"
    words = ("-t", "orders", "-p", "99", "--apply", "-y", "--backup", backup)
    missed = kafkalog(command, first, second, *words)
    assert (missed.status, "No partition 99 is here." in missed.stderr) == (1, True)
    assert not backup.exists()


def test_the_table_is_about_every_command() -> None:
    """107 uses that the first users had got wrong were the measure."""
    assert len(TABLE) >= 107
    assert len({one.line for one in TABLE}) == len(TABLE)
    assert {*all_commands()} - {*ALIASES} <= {one.line.split()[0] for one in TABLE}


def test_the_options_of_peers_are_not_ours() -> None:
    """Else nobody would see what is said about them."""
    for known in OPTIONS_OF_PEERS:
        *command, option = known.split()
        for name in command or all_commands().keys() - {"kafka-dump-log"}:
            ours = {word for one in all_commands()[name].params for word in one.opts}
            assert option not in ours, known


def started(*words: str, **options: object) -> subprocess.Popen[bytes]:
    code = "from kafkalog_cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        **options,  # type: ignore[call-overload]
    )


def test_a_reader_that_goes_away_ends_the_run() -> None:
    """As `| head` does: neither an error nor a traceback."""
    process = started("dump-segment", "examples/log-dir", "-o", "ndjson")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=60)
    assert (process.returncode, b"error" in said, b"Traceback" in said) == (
        -signal.SIGPIPE,
        False,
        False,
    )


def test_ctrl_c_ends_the_run_without_a_word() -> None:
    process = started("dump-segment", "examples/log-dir/orders-0", "--follow", "-o", "ndjson")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"")


def test_a_name_that_is_no_utf_8_is_shown_escaped(kafkalog: Run) -> None:
    for words in (["ls", "\udcff\udcfe"], ["ls", "examples/log-dir", "-t", "\udcff"]):
        done = kafkalog(*words)
        assert done.status in (1, 2)
        assert "\\xff" in done.stderr
