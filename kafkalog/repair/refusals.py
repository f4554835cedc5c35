"""What keeps a repair from being done in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import CorruptDataError, RefusedError
from kafkalog.runs.requirements import require_own_files
from kafkalog.storage import require_writable

if TYPE_CHECKING:
    from kafkalog.repair.model import RecoveryPlan


def require_performable(plan: RecoveryPlan, *, forced: bool) -> None:
    """What is planned may be done.

    Args:
        plan: of the recovery.
        forced: whether records below the high watermark may go.

    Raises:
        CorruptDataError: a broker could not load the log.
        RefusedError: it is left to the broker, committed records would go, or it holds links.
        UnwritableError: the directory is read-only.
    """
    partition, refusal = plan.partition, plan.predicted.refusal
    if refusal is not None:
        raise CorruptDataError(
            f"A broker cannot load this log: {refusal.error}: {refusal.message}.",
            path=partition.path,
            hint=f"`kafkalog salvage {partition.path} --to DIR` copies what is sound.",
        )
    if plan.untouched is not None:
        words = f"It is not recovered: {plan.untouched.reason}."
        raise RefusedError(words, path=partition.path, hint=plan.untouched.hint)
    if plan.committed_lost is not None and not forced:
        first, last = plan.committed_lost
        raise RefusedError(
            f"Offsets {first} to {last}, which are below the high watermark "
            f"{plan.high_watermark}, would be lost.",
            path=partition.path,
            note="Other replicas may have them, and lose them if this one becomes the leader.",
            hint="Move the partition directory away and let the broker replicate it again; or "
            f"`kafkalog salvage {partition.path} --to DIR`; or --force.",
        )
    if plan.changes:
        require_own_files(partition)
        require_writable(partition.path)
