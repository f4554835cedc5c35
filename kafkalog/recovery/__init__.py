"""What a broker's next start would make of a partition directory, step by step."""

from kafkalog.recovery.epochs import epochs_from_start
from kafkalog.recovery.hosting import Hosting, read_hosting
from kafkalog.recovery.log_dir_start import (
    PredictedLogDirStart,
    log_dir_refusals,
    missing_identity,
    predict_log_dir_start,
)
from kafkalog.recovery.model import (
    Action,
    Consequence,
    CreateSegment,
    DeleteSegment,
    LoadedLog,
    LoadedSegment,
    PredictedStart,
    RebuildIndexes,
    Refusal,
    RemoveFile,
    RenameFile,
    SegmentPart,
    SplitSegment,
    StartConfig,
    StartMode,
    TruncateLog,
    Verdict,
    WriteFile,
)
from kafkalog.recovery.next_start import NextStart
from kafkalog.recovery.start import (
    StartInProgress,
    checkpointed,
    predict_start,
    start_mode,
    usual_config,
)
from kafkalog.recovery.start_configs import start_config
from kafkalog.recovery.words import start_line

__all__ = [
    "Action",
    "Consequence",
    "CreateSegment",
    "DeleteSegment",
    "Hosting",
    "LoadedLog",
    "LoadedSegment",
    "NextStart",
    "PredictedLogDirStart",
    "PredictedStart",
    "RebuildIndexes",
    "Refusal",
    "RemoveFile",
    "RenameFile",
    "SegmentPart",
    "SplitSegment",
    "StartConfig",
    "StartInProgress",
    "StartMode",
    "TruncateLog",
    "Verdict",
    "WriteFile",
    "checkpointed",
    "epochs_from_start",
    "log_dir_refusals",
    "missing_identity",
    "predict_log_dir_start",
    "predict_start",
    "read_hosting",
    "start_config",
    "start_line",
    "start_mode",
    "usual_config",
]
