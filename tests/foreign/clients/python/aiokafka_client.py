"""aiokafka."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaProducer
from written import BIG, CODECS, HEADERS, MANY, PLAIN, TIMES_MS, value


async def write(config: dict[str, Any], topic: str, records: list[dict[str, Any]]) -> None:
    """One producer, one topic."""
    given = {"linger_ms": 200, "max_batch_size": 1 << 20, **config}
    async with AIOKafkaProducer(bootstrap_servers=sys.argv[1], **given) as producer:
        sent = [await producer.send(topic, **record) for record in records]
        await asyncio.gather(*sent)


async def main() -> None:
    # It refuses a record without key and value.
    pairs = [pair for pair in PLAIN if pair != (None, None)]
    await write({}, "plain", [{"key": key, "value": data} for key, data in pairs])
    # It has no null header values.
    headers = [[(name, data or b"") for name, data in some] for some in HEADERS]
    await write({}, "headers", [{"value": b"with headers", "headers": some} for some in headers])
    await write({}, "times", [{"value": b"%d" % time, "timestamp_ms": time} for time in TIMES_MS])
    await write({}, "many", [{"key": b"%d" % (number % 7), "value": b"%d" % number}
                             for number in range(MANY)])  # fmt: skip
    await write({}, "big", [{"value": BIG}])
    for codec in CODECS:
        records: list[dict[str, Any]] = [
            {"key": b"%d" % number, "value": value(number), "headers": headers[number % 3]}
            for number in range(20)
        ]
        await write({"compression_type": codec}, codec, [*records, {"value": BIG}])
    idempotent = {"enable_idempotence": True, "compression_type": "zstd"}
    await write(idempotent, "idempotent", [{"value": value(number)} for number in range(15)])
    producer = AIOKafkaProducer(bootstrap_servers=sys.argv[1], transactional_id="aiokafka")
    async with producer:
        for round_ in range(4):
            await producer.begin_transaction()
            for number in range(3):
                await producer.send_and_wait("transactional", b"%d-%d" % (round_, number))
            if round_ % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()


asyncio.run(main())
