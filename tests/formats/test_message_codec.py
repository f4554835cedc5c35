"""The fast encoding of requests and responses against the schemas of the same table."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.message_codec import ELEMENTS_MAX, decode, encode
from formats.message_schema import UNKNOWN_TAGS, MessageError, message, schema
from formats.message_table import requests
from tests.formats.test_messages import values
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = [(found.name, version) for found in requests().values() for version in found.versions]


@pytest.mark.sampled(48)
@pytest.mark.parametrize(("name", "version"), VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_both_encodings_agree(name: str, version: int, data: st.DataObject):
    """The fast codec decodes what the schemas build, and they parse what it encodes."""
    found = message(name)
    flexible = version in found.flexible_versions
    drawn = known(data.draw(values(found.struct, version, flexible=flexible)))
    encoded = schema(name, version).build(drawn)
    decoded = decode(name, version, encoded)
    assert shared(decoded, drawn) == drawn
    again = b"".join(encode(name, version, decoded))
    assert decode(name, version, again) == decoded
    parsed = schema(name, version).parse(again)  # tagged fields with defaults are left out
    assert shared(decoded, parsed) == parsed


def known(value: Any) -> Any:
    """Drop unknown tagged fields: no request keeps them."""
    if isinstance(value, dict):
        return {key: known(one) for key, one in value.items() if key != UNKNOWN_TAGS}
    if isinstance(value, list):
        return [known(one) for one in value]
    return value


def shared(decoded: Any, given_value: Any) -> Any:
    """Drop the fields that were not given from a decoded value."""
    if isinstance(given_value, dict):
        return {key: shared(decoded[key], one) for key, one in given_value.items()}
    if isinstance(given_value, list):
        return [shared(*pair) for pair in zip(decoded, given_value, strict=True)]
    if isinstance(decoded, bool):
        assert decoded == bool(given_value)
        return given_value  # a byte other than 0 and 1, which the schemas keep
    return decoded


@settings(max_examples=examples(2000))
@given(data=st.binary(max_size=80), which=st.sampled_from(VERSIONS))
def test_any_bytes_give_a_message_or_an_error(data: bytes, which: tuple[str, int]):
    """A decoder raises no other exception."""
    with contextlib.suppress(MessageError):
        decode(*which, data)


def hostile() -> Iterator[tuple[str, int, bytes]]:
    """Build messages that claim, or have, far too many elements."""
    count = ELEMENTS_MAX + 1
    yield "MetadataRequest", 1, count.to_bytes(4, "big") + b"\0\0" * count
    yield "MetadataRequest", 1, (2**31 - 1).to_bytes(4, "big")
    yield "ApiVersionsRequest", 3, b"\1\1" + b"\xff\xff\xff\xff\x0f" + b"\x09\0" * 100_000


@pytest.mark.parametrize(("name", "version", "data"), list(hostile()))
def test_the_elements_of_a_message_are_bounded(name: str, version: int, data: bytes):
    """A small request must not become a large object."""
    with pytest.raises(MessageError):
        decode(name, version, data)
