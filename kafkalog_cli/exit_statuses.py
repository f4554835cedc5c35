"""The exit statuses and their meanings."""

from __future__ import annotations

from typing import Final

from kafkalog.errors import INCOMPLETE, INTERNAL_ERROR, NO

EXIT_MEANINGS: Final = {
    0: "done, complete and right; nothing to do; a plan was printed",
    NO: "the answer is no, and it is sure: nothing matches, a group, topic, partition or id is "
    "not there, copies differ, `verify` has findings, `--check` has a plan",
    2: "usage: an option, a value, the name of a command, a path that does not exist",
    3: "input cannot be read: permission, an I/O error, no file of Kafka's; or Spark, a cluster, a "
    "disk or a store does not answer; nothing was answered",
    4: "refused for safety; nothing changed",
    5: "unsupported: a version or codec, or an extra is missing: the hint installs it",
    6: "corrupt data stopped the work; nothing changed",
    7: "a limit was hit, such as that of decompressed size, or `--max-requests`; or memory ran out",
    INCOMPLETE: "incomplete: done or planned, but damaged, unreadable or refused parts are left "
    "out; each is named. A plan is incomplete, too, if a start would still refuse a part",
    INTERNAL_ERROR: "kafkalog itself failed (a bug): no verdict, whatever was printed; `--debug` "
    "shows where",
    130: "interrupted (Ctrl-C)",
}
