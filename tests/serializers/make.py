"""Serializes the values of `values.py` with the serializers of Confluent and Glue, and keeps both.

Run it with those serializers installed; the result is in the corpus, so the tests need none.

    python tests/serializers/make.py tests/corpus/serialized.json
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import uuid
from base64 import b64encode
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fastavro
import grpc_tools
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)  # fmt: skip
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

sys.path.insert(0, str(Path(__file__).parent))
from values import AVRO, JSON, PROTOBUF

Case = dict[str, Any]


IN_HEADERS = {"schema.id.serializer": header_schema_id_serializer}


def registered(client: Any, subject: str, number: int, schema_id: int) -> Case:
    """Return a version as a registry describes it."""
    found = client.get_schema(schema_id)
    references = [{"name": one.name, "subject": one.subject, "version": one.version}
                  for one in found.references or ()]  # fmt: skip
    return {"subject": subject, "version": number, "id": schema_id, "schema": found.schema_str,
            "schemaType": found.schema_type, "references": references,
            "guid": client.get_latest_version(subject).guid}  # fmt: skip


def serialized(serializer: Any, value: Any, topic: str, row: Any) -> list[Any]:
    """Return the bytes of a value, its row and, if the schema's id is there, its headers."""
    context = SerializationContext(topic, MessageField.VALUE, [])
    data = b64encode(serializer(value, context)).decode()
    headers = [[name, b64encode(id_).decode()] for name, id_ in context.headers]
    return [data, row, headers] if headers else [data, row]


def textual(case: Case, form: str, made: Any, conf: Any) -> Case:
    """Serialize with schemas that are texts: Avro and JSON Schema."""
    client = SchemaRegistryClient.new_client({"url": f"mock://{case['name']}/{len(conf)}"})
    subject = f"{case['name']}-value"
    versions, records, references = [], [], []
    for name, other, text in case.get("references", ()):
        schema_id = client.register_schema(other, Schema(json.dumps(text), form))
        references.append(SchemaReference(name, other, 1))
        versions.append(registered(client, other, 1, schema_id))
    for number, (text, values) in enumerate(case["versions"], 1):
        used = [one for one in references if one.name in json.dumps(text)]
        serializer = made(Schema(json.dumps(text), form, used), client, conf=conf)
        records += [serialized(serializer, value, case["name"], row) for value, row in values]
        schema_id = client.get_latest_version(subject).schema_id
        versions.append(registered(client, subject, number, schema_id))
    return {"name": name_of(case, conf), "form": form.lower(), "framing": "confluent",
            "versions": versions, "records": records}  # fmt: skip


def name_of(case: Case, conf: Any) -> str:
    return f"headers-{case['name']}" if conf else str(case["name"])


def avro_serializer(schema: Schema, client: Any, conf: Any) -> AvroSerializer:
    return AvroSerializer(client, schema, conf=conf)


def classes_of(files: dict[str, str], main: str) -> Any:
    """Return the message classes of a Protobuf file, from a pool of its own."""
    with tempfile.TemporaryDirectory() as place:
        for name, text in files.items():
            Path(place, name).write_text(text)
        known = Path(grpc_tools.__file__).parent / "_proto"
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{place}", f"-I{known}",
                        "--include_imports", "-oout", main], cwd=place, check=True)  # fmt: skip
        data = Path(place, "out").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def protobuf(case: Case, conf: Any) -> Case:
    client = SchemaRegistryClient.new_client({"url": f"mock://{case['name']}/{len(conf)}"})
    versions, records = {}, []
    main = f"{case['name']}.proto"
    for number, (text, values) in enumerate(case["versions"], 1):
        files = {**case.get("references", {}), main: text}
        find = classes_of(files, main)
        for name, value, row in values:
            kind = find(name)
            serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False, **conf})
            parsed = json_format.ParseDict(value, kind())
            records.append(serialized(serializer, parsed, case["name"], row))
            subject = f"{case['name']}-value"
            schema_id = client.get_latest_version(subject).schema_id
            versions[subject, number] = {
                **registered(client, subject, number, schema_id),
                "text": text,
            }
    for name, text in case.get("references", {}).items():
        found = client.get_latest_version(name)
        versions[name, 1] = {**registered(client, name, 1, found.schema_id), "text": text}
    return {"name": name_of(case, conf), "form": "protobuf", "framing": "confluent",
            "message": case.get("message"),
            "versions": list(versions.values()), "records": records}  # fmt: skip


def glue(case: Case) -> Case:
    """Encode Avro as Glue's serializer does, with every other record compressed."""
    from aws_schema_registry.codec import encode

    versions, records = [], []
    for number, (text, values) in enumerate(case["versions"], 1):
        schema_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{case['name']}/{number}")
        told = {"id": str(schema_id), "schema": json.dumps(text), "schemaType": "AVRO"}
        versions.append({"subject": f"{case['name']}-value", "version": number, **told})
        for value, row in values:
            file = io.BytesIO()
            fastavro.schemaless_writer(file, fastavro.parse_schema(text), value)
            data = encode(file.getvalue(), schema_id, compression=len(records) % 2 == 1)
            records.append([b64encode(data).decode(), row])
    return {"name": f"glue-{case['name']}", "form": "avro", "framing": "glue",
            "versions": versions, "records": records}  # fmt: skip


def main(to: str) -> None:
    cases: list[Case] = []
    for conf in ({}, IN_HEADERS):
        cases += [textual(case, "AVRO", avro_serializer, conf) for case in AVRO]
        cases += [textual(case, "JSON", JSONSerializer, conf) for case in JSON]
        cases += [protobuf(case, conf) for case in PROTOBUF]
    cases += [glue(case) for case in AVRO if "references" not in case]
    made_by = {name: version(name) for name in
               ("confluent-kafka", "aws-glue-schema-registry", "fastavro", "protobuf")}  # fmt: skip
    Path(to).write_text(json.dumps({"made_by": made_by, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
