"""Decoding of protobuf bodies, as kubectl and other Go clients send them."""

from __future__ import annotations

import random
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import orjson
import pytest

from envtest.builtins.catalog import all_resources
from envtest.endpoints.protobuf import ProtobufError, decode_body
from test.support.protobuf import envelope, field, varint


def test_maps_and_metadata_are_decoded() -> None:
    metadata = field(1, b"a") + field(8, b"") + field(11, field(1, b"k") + field(2, b"v"))
    raw = field(1, metadata) + field(2, field(1, b"key") + field(2, b"value"))
    assert decode_body(envelope("v1", "ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "creationTimestamp": None, "labels": {"k": "v"}},
        "data": {"key": "value"},
    }


def test_bytes_are_decoded_to_base64() -> None:
    raw = field(2, field(1, b"key") + field(2, b"\x00\xff"))
    assert decode_body(envelope("v1", "Secret", raw))["data"] == {"key": "AP8="}


def test_nested_messages_lists_and_quantities_are_decoded() -> None:
    limits = field(1, field(1, b"cpu") + field(2, field(1, b"500m")))
    container = field(1, b"c") + field(8, limits)
    volume = field(1, b"v") + field(2, field(2, field(1, b"Memory")))
    probe = field(1, field(2, field(1, b"/") + field(2, field(1, 1) + field(3, b"http"))))
    raw = field(2, field(1, volume) + field(2, container + field(10, probe)))
    spec = decode_body(envelope("v1", "Pod", raw))["spec"]
    assert spec["volumes"] == [{"name": "v", "emptyDir": {"medium": "Memory"}}]
    assert spec["containers"] == [
        {
            "name": "c",
            "resources": {"limits": {"cpu": "500m"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
        }
    ]


def test_times_and_negative_numbers_are_decoded() -> None:
    raw = field(1, field(8, field(1, 1_000_000_000)) + field(10, -5))
    metadata = decode_body(envelope("v1", "Pod", raw))["metadata"]
    assert metadata == {
        "creationTimestamp": "2001-09-09T01:46:40Z",
        "deletionGracePeriodSeconds": -5,
    }
    lease = field(2, field(3, field(1, 1_000_000_000) + field(2, 123_456_789)))
    found = decode_body(envelope("coordination.k8s.io/v1", "Lease", field(2, lease[2:])))
    assert found["spec"] == {"acquireTime": "2001-09-09T01:46:40.123456Z"}


def test_years_below_1000_have_four_digits() -> None:
    moment = field(1, -62_135_596_798)  # two seconds after Go's zero time
    metadata = decode_body(envelope("v1", "Pod", field(1, field(8, moment))))["metadata"]
    assert metadata["creationTimestamp"] == "0001-01-01T00:00:02Z"
    lease = decode_body(envelope("coordination.k8s.io/v1", "Lease", field(2, field(4, moment))))
    assert lease["spec"]["renewTime"] == "0001-01-01T00:00:02.000000Z"


def test_all_kinds_are_decoded() -> None:
    for each in all_resources():
        version = f"{each.group}/{each.version}" if each.group else each.version
        assert decode_body(envelope(version, each.kind, b"")) == {
            "apiVersion": version,
            "kind": each.kind,
        }


HACK = Path(__file__).parents[3] / "hack"
TABLE = Path(__file__).parents[3] / "src" / "envtest" / "data" / "protobuf.json.gz"


def generator() -> ModuleType:
    """Import the program that writes the table of fields."""
    spec = spec_from_file_location("generate_protobuf_fields", HACK / "generate_protobuf_fields.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROTO = """
package k8s.io.kube_aggregator.pkg.apis.apiregistration.v1;
message ServiceReference {
  optional string namespace = 1;
  optional string name = 2;
  optional string host = 3;
}
"""


def test_generator_maps_packages_with_underscores_and_lists_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "generated.proto").write_text(PROTO)
    table, problems = generator().generate([tmp_path])
    package = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1"
    assert table == {
        package: {"ServiceReference": {"1": ["namespace", "s", ""], "2": ["name", "s", ""]}}
    }
    assert f"{package}.ServiceReference.host: not a field of the JSON type" in problems
    assert f"{package}.ServiceReference.port: no such field of the message" in problems
    assert f"{package}.APIService: no such message" in problems
    assert "io.k8s.api.core.v1.Pod: no such message" in problems


def test_generator_fails_without_writing(tmp_path: Path) -> None:
    before = TABLE.read_bytes()
    with pytest.raises(SystemExit, match=r"io\.k8s\.api\.core\.v1\.Pod: no such message"):
        generator().main([str(tmp_path)])
    assert TABLE.read_bytes() == before


def test_delete_options_are_decoded() -> None:
    raw = field(1, 30) + field(4, b"Foreground") + field(5, b"All")
    found = decode_body(envelope("meta.k8s.io/v1", "DeleteOptions", raw))
    assert found["gracePeriodSeconds"] == 30
    assert found["propagationPolicy"] == "Foreground"
    assert found["dryRun"] == ["All"]


def test_unknown_fields_are_ignored() -> None:
    assert decode_body(envelope("v1", "ConfigMap", field(999, b"x") + field(998, 1))) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", "does not appear to be a protobuf message"),
        (envelope("v1", "Nosuch", b""), 'no kind "Nosuch" is registered for version "v1"'),
        (envelope("v1", "ConfigMap", b"\x0a\x7f"), "truncated field"),
        (envelope("v1", "ConfigMap", b"\x80"), "truncated number"),
        (envelope("v1", "ConfigMap", b"\x0b"), "unknown wire type 3"),
        (envelope("v1", "ConfigMap", field(1, field(1, b"\xff"))), "string is not valid UTF-8"),
    ],
)
def test_invalid_messages_are_rejected(data: bytes, message: str) -> None:
    with pytest.raises(ProtobufError, match=message):
        decode_body(data)


def random_message(pick: random.Random, depth: int = 0) -> bytes:
    out = b""
    for _ in range(pick.randrange(1, 5)):
        number, wire = pick.randrange(1, 14), pick.choice((0, 2, 2, 2, 2, 1, 5, 3))
        out += varint(number << 3 | wire)
        if wire == 0:
            out += varint(pick.choice((0, 1, 2**31, 2**63, 2**64 - 1, 2**69)))
        elif wire == 2:
            nested = depth < 6 and pick.random() < 0.7
            value = (
                random_message(pick, depth + 1)
                if nested
                else pick.choice((b"", b"a", b"\xff\xfe", b"Pod"))
            )
            out += varint(len(value) if pick.random() < 0.95 else 2**40) + value
        else:
            out += pick.randbytes(8 if wire == 1 else 4)
    return out


@pytest.mark.parametrize(
    "kind",
    ["v1/Pod", "v1/Secret", "v1/Service", "apps/v1/Deployment", "coordination.k8s.io/v1/Lease"],
)
def test_random_messages_are_decoded_or_rejected(kind: str) -> None:
    seed = 36
    print(f"seed {seed}")
    pick = random.Random(seed)
    version, _, name = kind.rpartition("/")
    decoded = rejected = 0
    for _ in range(1500):
        body = envelope(version, name, random_message(pick))
        try:
            orjson.dumps(
                decode_body(body[: pick.randrange(len(body))] if pick.random() < 0.1 else body)
            )
            decoded += 1
        except ProtobufError:
            rejected += 1
    assert decoded
    assert rejected
