"""The listener of a run: receives failures of partitions, notes and configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.configs import LogDirConfigs
    from kafkalog.errors import KafkaLogError


class Listener:
    """Receives what a run reports besides its results; subclasses override what they need."""

    def failed(self, error: KafkaLogError) -> None:
        """Handle the failure of one partition; by default, raise it and so stop the run."""
        raise error

    def noted(self, text: str) -> None:
        """Handle a note, one line of text."""

    def configured(self, configs: LogDirConfigs) -> None:
        """Handle the configs of the topics before they are used."""
