"""Objects whose managedFields no decoder reads."""

from __future__ import annotations

import json

import orjson
import pytest

from cfo.runtime.process.nested_json import readable_object


def nested(depth: int, inner: str = "{}") -> str:
    return '{"f:a":' * depth + inner + "}" * depth


def job(managed_fields: str, *, template: str = "[]") -> bytes:
    metadata = (
        f'{{"name": "a", "managedFields": [{{"manager": "m", "fieldsV1": {managed_fields}}}]}}'
    )
    pod = f'{{"metadata": {{"managedFields": {template}}}, "spec": {{"a]": "\\"managedFields\\":["}}}}'
    return f'{{"kind": "Job", "metadata": {metadata}, "spec": {{"template": {pod}}}}}'.encode()


EXPECTED = json.loads(job("{}"))
EXPECTED["metadata"]["managedFields"] = []


@pytest.mark.parametrize(
    "raw",
    [
        job(nested(2000)),
        job(nested(9000)),
        job('{"f:]\\"[": ' + nested(2000) + "}"),
        job("{}", template=f"[{nested(2000)}]"),
        job(nested(2000), template=f'[{{"fieldsV1": [[1], {nested(2000)}]}}]'),
        job('{"f:X":{}}').replace(b"X", b"\xff\xfe"),
        job('{"f:\\ud800":{}}'),
        job("{}", template='[{"fieldsV1": [["\\ud800"]]}]'),
    ],
)
async def test_managed_fields_are_left_out(raw: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(raw)
    assert json.loads(await readable_object(raw)) == EXPECTED


@pytest.mark.parametrize("depth", [0, 500])
async def test_readable_object_is_kept(depth: int) -> None:
    raw = job(nested(depth, '{"ü": {}}'))
    assert await readable_object(raw) is raw


async def test_unreadable_object_is_kept() -> None:
    raw = job("{}").replace(b'"spec"', b'"deep": ' + nested(2000).encode() + b', "spec"')
    assert await readable_object(raw) is raw


async def test_managed_fields_without_an_end_are_no_error() -> None:
    raw = b'{"metadata": {"managedFields": [' + b'{"a":' * 2000
    assert await readable_object(raw) is raw
