"""Spark looks for data sources in packages of this kind of name: `format("kafkalog")` is found."""

from kafkalog.spark import KafkaLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
