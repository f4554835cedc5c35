"""The two checksums against published check values and Kafka's bytes."""

from __future__ import annotations

from kafkalog.io.codecs import crc32, crc32c


def test_both_give_their_published_check_value():
    """Every catalogue of checksums lists the value of "123456789"."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32(b"123456789") == 0xCBF43926


def test_a_batch_of_magic_2_is_covered_from_its_attributes_on():
    """kafka-formats §8.3, the CRC at byte 17."""
    marker = bytes.fromhex(
        "000000000000002a00000042000000070245baaa620030000000000000018bcfe56be80000018bcfe56be800"
        "00000000000fa10003ffffffff000000012000000008000000010c00000000000c00"
    )
    assert crc32c(memoryview(marker)[21:]) == int.from_bytes(marker[17:21], "big")


def test_a_message_of_magic_0_is_covered_from_its_magic_on():
    """kafka-formats §8.4, the CRC at byte 12."""
    message = bytes.fromhex("000000000000000700000010a4ad2011000000000001610000000162")
    assert crc32(memoryview(message)[16:]) == int.from_bytes(message[12:16], "big")
