"""Spark looks for data sources in packages of this kind of name: `format("kafkalog")` is found."""

from kafkalog.spark.settings import has_data_sources

if has_data_sources():  # an older Spark looks here, too
    from kafkalog.spark import KafkaLogDataSource as DefaultSource  # noqa: F401
