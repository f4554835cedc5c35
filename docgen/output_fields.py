"""What each object of NDJSON and JSON output means, field by field; the rows themselves are real.

`docgen.output` compares this table with what the commands print: a field that is missing here,
or here alone, stops it.
"""

from __future__ import annotations

from docgen.compaction_fields import COMPACTION_TYPES
from docgen.export_fields import EXPORT_TYPES
from docgen.maintenance_fields import MAINTENANCE_TYPES
from docgen.object_types import INT, TEXT, ObjectType, documented, maybe
from docgen.repair_fields import REPAIR_TYPES
from docgen.salvage_fields import SALVAGE_TYPES
from docgen.simulation_fields import SIMULATION_TYPES
from kafkalog_cli.output import findings, listing, lookups, records, side_files
from kafkalog_cli.output.objects import DEFECT

OBJECT_TYPES = {
    **documented(listing.LOG_DIR, listing.PARTITION, listing.SEGMENT, listing.FILE),
    **documented(records.BATCH, records.RECORD),
    **documented(
        side_files.OFFSET_INDEX_ENTRY,
        side_files.TIME_INDEX_ENTRY,
        side_files.ABORTED_TRANSACTION,
        side_files.PRODUCER_STATE,
        side_files.CHECKPOINT_ENTRY,
        side_files.LEADER_EPOCH,
        side_files.PROPERTY,
    ),
    **documented(lookups.LOOKUP, lookups.STEP),
    **documented(DEFECT),
    **documented(findings.NEXT_START, findings.SUMMARY),
    "reference": ObjectType(
        "`explain`",
        "What is known about a finding or an error of this name.",
        {
            "reference": (TEXT, "its name"),
            "severity": (maybe(TEXT), "of a finding: `damage`, `index`, `warning` or `note`"),
            "exit_code": (maybe(INT), "the exit status where it is an error that stops the work"),
            "meaning": (TEXT, "what was found, or what happened"),
            "arises": (maybe(TEXT), "what it comes from"),
            "broker": (maybe(TEXT), "what a broker makes of it"),
            "hint": (maybe(TEXT), "what to do"),
            "example": (maybe(TEXT), "`detail` of such a finding"),
        },
    ),
    **REPAIR_TYPES,
    **SALVAGE_TYPES,
    **SIMULATION_TYPES,
    **COMPACTION_TYPES,
    **MAINTENANCE_TYPES,
    **EXPORT_TYPES,
}  # fmt: skip
