"""The schemas of the text files of a log directory: exact text, split as Java splits it."""

from __future__ import annotations

import javaproperties
import pytest
from construct import Construct, ConstructError
from hypothesis import example, given
from hypothesis import strategies as st

from formats.text_files import (
    Checkpoint,
    CleanShutdown,
    MetaProperties,
    PartitionMetadata,
    QuorumState,
)

# kafka-formats §8.4 and §6.10.
OFFSETS = b"0\n2\nmy.topic 0 5\nmy.topic 11 7\n"
EPOCHS = b"0\n2\n0 0\n3 42\n"
PARTITION = b"version: 0\ntopic_id: MkTRaEcKTPyRrQqHI1qwhQ"
QUORUM = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
SHUTDOWN = b'{"version":0,"brokerEpoch":77}'
META = (
    b"#\n#Tue Jul 01 10:00:00 UTC 2025\nversion=1\ncluster.id=MkTRaEcKTPyRrQqHI1qwhQ\n"
    b"directory.id=AAAAAAAAAAAAAAAAAAAABQ\nnode.id=1\n"
)

SCHEMAS = st.sampled_from([Checkpoint, PartitionMetadata, MetaProperties, CleanShutdown])
JAVA_TEXT = st.text(alphabet="ab=:#! \t\f\\\r\n\u00e9u0041", max_size=40)


def fields(data: bytes) -> list[list[str]]:
    return [line.fields for line in Checkpoint.parse(data)]


def test_a_checkpoint_is_lines_of_fields():
    """Version, count, then the entries."""
    assert fields(OFFSETS) == [["0"], ["2"], ["my.topic", "0", "5"], ["my.topic", "11", "7"]]
    assert fields(EPOCHS) == [["0"], ["2"], ["0", "0"], ["3", "42"]]
    assert fields(b"") == []


def test_fields_are_split_as_java_splits_them():
    """At any run of whitespace; a leading run makes an empty field, and so does a blank line."""
    assert fields(b"a \t b\x0b\x0cc\n") == [["a", "b", "c"]]
    assert fields(b" a 1\n\n") == [["", "a", "1"], [""]]
    assert fields("a\u00a0b\u2028c".encode()) == [["a\u00a0b\u2028c"]]


def test_lines_end_as_for_a_buffered_reader():
    """LF, CR and CRLF; nothing else."""
    lines = Checkpoint.parse(b"a\nb\rc\r\n\rd")
    assert [line.end for line in lines] == ["\n", "\r", "\r\n", "\r", ""]
    assert fields(b"a\x0bb\x85c".replace(b"\x85", "\x85".encode())) == [["a", "b\x85c"]]


def test_a_checkpoint_is_built_without_separators():
    """The caller gives the fields of an entry; one space separates them."""
    lines = [{"fields": [f], "separators": [], "end": "\n"} for f in ("0", "1")]
    lines.append({"fields": ["my.topic", "0", "5"], "separators": [], "end": "\n"})
    assert Checkpoint.build(lines) == b"0\n1\nmy.topic 0 5\n"


def test_a_partition_metadata_is_keys_and_values():
    """Two lines, the last without line end."""
    version, topic = PartitionMetadata.parse(PARTITION)
    assert (version.key, version.separator, version.value, version.end) == (
        "version",
        ": ",
        "0",
        "\n",
    )
    assert (topic.key, topic.value, topic.end) == ("topic_id", "MkTRaEcKTPyRrQqHI1qwhQ", "")


def test_a_partition_metadata_line_without_separator_is_all_key():
    """A colon alone does not separate: Kafka splits at colon and whitespace."""
    (line,) = PartitionMetadata.parse(b"version:0")
    assert (line.key, line.separator, line.value) == ("version:0", "", "")


def test_a_quorum_state_is_its_json():
    """Keys as Kafka names them, in the order of the file."""
    state = QuorumState.parse(QUORUM)
    assert state["leaderId"] == 1
    assert state["currentVoters"] == [{"voterId": 1}]
    assert QuorumState.build(state) == QUORUM


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'{"a":NaN}',
        b'{"a":\xff}',
        b'{"a":' + b"[" * 100_000,
        b'{"a":' + b"9" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
    ids=["empty", "cut", "array", "number", "nan", "utf8", "deep", "long", "bom"],
)
def test_what_is_no_json_object_is_a_construct_error(data: bytes):
    """Neither the errors of the JSON decoder nor the recursion limit may escape."""
    with pytest.raises(ConstructError):
        QuorumState.parse(data)


def test_a_clean_shutdown_file_is_json_or_empty():
    """Brokers before 3.7 leave it empty, which is None and comes back empty."""
    assert CleanShutdown.parse(SHUTDOWN) == {"version": 0, "brokerEpoch": 77}
    assert CleanShutdown.build({"version": 0, "brokerEpoch": 77}) == SHUTDOWN
    assert CleanShutdown.parse(b"") is None
    assert CleanShutdown.build(None) == b""


def test_meta_properties_are_comments_and_properties():
    """The shape that Kafka's `PropertiesUtils` writes."""
    lines = MetaProperties.parse(META)
    assert [line.kind for line in lines] == ["comment"] * 2 + ["property"] * 4
    assert [(line.key, line.separator, line.value) for line in lines][2:4] == [
        ("version", "=", "1"),
        ("cluster.id", "=", "MkTRaEcKTPyRrQqHI1qwhQ"),
    ]


def test_a_continued_property_is_one_line():
    """A backslash at the end joins the next line, without its leading whitespace."""
    blank, line, comment = MetaProperties.parse(b" \n a\\\n  b : c\\\r\n  d\n!e")
    assert (blank.kind, comment.kind) == ("blank", "comment")
    assert (line.indent, line.key, line.separator) == (" ", "a\\\n  b", " : ")
    assert (line.value, line.end) == ("c\\\r\n  d", "\n")


@given(JAVA_TEXT)
@example("\\u0061=\\u00e9\\\n\\:x")
def test_keys_and_values_are_those_of_java_properties(text: str):
    """The `javaproperties` package that later removes the escapes finds the same ones by itself."""
    try:
        expected = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError:
        return
    lines = MetaProperties.parse(text.encode("iso-8859-1"))
    found = {}
    for line in lines:
        if line.kind == "property":
            found |= javaproperties.loads(line.key + line.separator + line.value)
    assert found == expected


@given(SCHEMAS, st.text(alphabet="ab:=# \t\x0b\x0c\\\r\n{}\u00e9\u2028", max_size=60))
@example(PartitionMetadata, PARTITION.decode())
@example(Checkpoint, OFFSETS.decode())
@example(MetaProperties, META.decode())
@example(CleanShutdown, SHUTDOWN.decode())
def test_any_text_comes_back(schema: Construct, text: str):
    """A file that was edited by hand must not lose a blank."""
    data = text.encode()
    try:
        parsed = schema.parse(data)
    except ConstructError:
        assert schema is CleanShutdown
        return
    if schema is not CleanShutdown or data == SHUTDOWN:
        assert schema.build(parsed) == data


@given(st.binary(max_size=60))
def test_any_bytes_are_properties_that_come_back(data: bytes):
    """ISO-8859-1 has a character for each byte."""
    assert MetaProperties.build(MetaProperties.parse(data)) == data


@given(
    st.sampled_from([Checkpoint, PartitionMetadata, QuorumState, CleanShutdown]),
    st.binary(max_size=60),
)
@example(Checkpoint, b"\xff")
@example(PartitionMetadata, b"topic_id: \xc3")
def test_any_bytes_are_text_or_a_construct_error(schema: Construct, data: bytes):
    """A zeroed or torn file must not raise any other exception."""
    try:
        schema.parse(data)
    except ConstructError:
        return


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        (Checkpoint, [{"fields": ["\ud800"], "separators": [], "end": ""}]),
        (QuorumState, {"a": "\ud800"}),
        (QuorumState, {"a": float("nan")}),
        (QuorumState, {"a": object()}),
        (
            MetaProperties,
            [{"indent": "", "key": "\u0100", "separator": "=", "value": "", "end": ""}],
        ),
    ],
)
def test_what_cannot_be_written_is_a_construct_error(schema: Construct, fields: object):
    """Building raises one kind of error, as parsing does."""
    with pytest.raises(ConstructError):
        schema.build(fields)
