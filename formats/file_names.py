"""The names that Kafka gives to files and directories on disk, and the suffixes of their states.

Follows `LogFileUtils`, `LogManager`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`,
`PartitionMetadataFile`, `CleanShutdownFileHandler` and `MetaPropertiesEnsemble` of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

# Files of a segment are named by 20 digits and one of these.
LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
INDEXES: Final = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
SNAPSHOT: Final = ".snapshot"

# States of a file.
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"

# States of a partition directory.
DELETE_DIRECTORY: Final = "-delete"
FUTURE_DIRECTORY: Final = "-future"
STRAY_DIRECTORY: Final = "-stray"

# In a partition directory.
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
QUORUM_STATE: Final = "quorum-state"
REMOTE_LOG_SNAPSHOT: Final = "remote_log_snapshot"
REMOTE_LOG_OFFSETS: Final = "_rlmm_committed_offsets"

# In a log directory.
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP: Final = "bootstrap.checkpoint"
SERVER_PROPERTIES: Final = "server.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
