"""librdkafka, by way of confluent-kafka."""

from __future__ import annotations

import sys

from confluent_kafka import Producer
from written import BIG, CODECS, HEADERS, MANY, PLAIN, TIMES_MS, value


def producer(**config: object) -> Producer:
    return Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 200, **config})


def main() -> None:
    plain = producer()
    for key, data in PLAIN:
        plain.produce("plain", data, key)
    for headers in HEADERS:
        plain.produce("headers", b"with headers", b"key", headers=headers)
    for time in TIMES_MS:
        plain.produce("times", b"%d" % time, timestamp=time)
    for number in range(MANY):
        plain.produce("many", b"%d" % number, b"%d" % (number % 7))
    plain.produce("big", BIG)
    plain.flush()
    for codec in CODECS:
        packing = producer(**{"compression.type": codec})
        for number in range(20):
            packing.produce(codec, value(number), b"%d" % number, headers=HEADERS[number % 3])
        packing.produce(codec, BIG)
        packing.flush()
    idempotent = producer(**{"enable.idempotence": True, "compression.type": "zstd"})
    for batch in range(3):
        for number in range(5):
            idempotent.produce("idempotent", value(batch * 5 + number))
        idempotent.flush()
    transactional = producer(**{"transactional.id": "librdkafka"})
    transactional.init_transactions()
    for round_ in range(4):
        transactional.begin_transaction()
        for number in range(3):
            transactional.produce("transactional", b"%d-%d" % (round_, number))
        transactional.flush()
        if round_ % 2:
            transactional.abort_transaction()
        else:
            transactional.commit_transaction()


main()
