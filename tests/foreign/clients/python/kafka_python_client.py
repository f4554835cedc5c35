"""kafka-python."""

from __future__ import annotations

import sys

from kafka import KafkaProducer
from written import BIG, CODECS, HEADERS, MANY, PLAIN, TIMES_MS, value


def producer(**config: object) -> KafkaProducer:
    given = {"linger_ms": 200, "batch_size": 1 << 20, "enable_idempotence": False, **config}
    return KafkaProducer(bootstrap_servers=sys.argv[1], **given)


def main() -> None:
    # It has no null header values.
    headers = [[(name, data or b"") for name, data in some] for some in HEADERS]
    plain = producer()
    for key, data in PLAIN:
        if key is not None or data is not None:  # it refuses a record without both
            plain.send("plain", key=key, value=data)
    for some in headers:
        plain.send("headers", b"with headers", key=b"key", headers=some)
    for time in TIMES_MS:
        plain.send("times", b"%d" % time, timestamp_ms=time)
    for number in range(MANY):
        plain.send("many", b"%d" % number, key=b"%d" % (number % 7))
    plain.send("big", BIG)
    plain.flush()
    for codec in CODECS:
        packing = producer(compression_type=codec)
        for number in range(20):
            packing.send(codec, value(number), key=b"%d" % number, headers=headers[number % 3])
        packing.send(codec, BIG)
        packing.flush()
    idempotent = producer(enable_idempotence=True, compression_type="zstd")
    for batch in range(3):
        for number in range(5):
            idempotent.send("idempotent", value(batch * 5 + number))
        idempotent.flush()
    transactional = producer(enable_idempotence=True, transactional_id="kafka-python")
    transactional.init_transactions()
    for round_ in range(4):
        transactional.begin_transaction()
        for number in range(3):
            transactional.send("transactional", b"%d-%d" % (round_, number))
        transactional.flush()
        if round_ % 2:
            transactional.abort_transaction()
        else:
            transactional.commit_transaction()


main()
