"""Who hears what a run says besides its results: failures of parts, notes, configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.configs import LogDirConfigs
    from kafkalog.errors import KafkaLogError


class Listener:
    """Hears what a run says besides its results. Derive from it to hear more."""

    def failed(self, error: KafkaLogError) -> None:
        """Take what stops the work on one partition; by default it stops the run."""
        raise error

    def noted(self, text: str) -> None:
        """Take one line worth knowing."""

    def configured(self, configs: LogDirConfigs) -> None:
        """Take the configs of the topics, before they are used."""
