"""A read-only Kafka broker over the files of a dead one: `kafkalog serve`."""
