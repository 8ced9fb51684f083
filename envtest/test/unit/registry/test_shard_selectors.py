"""Selectors of shards: what they match, and what is rejected; which feature gates can be switched."""

from __future__ import annotations

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.apimachinery.errors import StatusError
from envtest.configuration.feature_gates import enabled_features, parse_feature_gates
from envtest.configuration.kubernetes_version import parse_version
from envtest.registry.shard_selectors import parse_shard_selector
from envtest.storage.record import record_of
from test.support.config_maps import CONFIG_MAPS, config_map

ZERO, HALF, END = "0x0000000000000000", "0x8000000000000000", "0x10000000000000000"
UID, NAMESPACE = "object.metadata.uid", "object.metadata.namespace"
GATE = "ShardedListAndWatch"


def shard_range(field: str = UID, start: str = ZERO, end: str = HALF) -> str:
    return f"shardRange({field}, '{start}', '{end}')"


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        (shard_range(), shard_range()),
        (f"  shardRange( {UID} ,'{ZERO}',  \"{HALF}\" )  ", shard_range()),
        (
            f"{shard_range()}||{shard_range(start=HALF, end=END)}",
            f"{shard_range()} || {shard_range(start=HALF, end=END)}",
        ),
    ],
)
def test_selector_is_normalized(text: str, normalized: str) -> None:
    assert parse_shard_selector(text).text == normalized


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
        ("x", "unexpected expression"),
        (f"other({UID}, '{ZERO}', '{HALF}')", 'unsupported function "other"; only shardRange'),
        (f"{shard_range()} && {shard_range()}", "only shardRange() and || are allowed"),
        (f"shardRange({UID}, '{ZERO}')", "shardRange() requires exactly 3 arguments, got 2"),
        (
            shard_range("object.metadata.name"),
            'unsupported field path "object.metadata.name"; supported: ',
        ),
        (shard_range("'uid'"), "shardRange() first argument: expected field path"),
        (f"shardRange({UID}, 0, 8)", "hexStart must be a string literal"),
        (shard_range(start="00"), "hexStart must have '0x' prefix, got \"00\""),
        (shard_range(start="0x"), "hexStart: hex value is required after '0x'"),
        (shard_range(start="0x" + "0" * 18), "hexStart: hex value too long (18 chars, max 17)"),
        (shard_range(end="0x000000000000000G"), 'hexEnd: invalid hex character "G"'),
        (
            shard_range(end="0x20000000000000000"),
            "17-digit hex value must be '0x10000000000000000' (2^64)",
        ),
        (shard_range(end="0xff"), 'got "0xff" (did you mean "0x00000000000000ff"?)'),
        (shard_range(start=HALF), f"shard range start {HALF} must be less than end {HALF}"),
        (
            f"{shard_range()} || {shard_range(NAMESPACE)}",
            f'all shard ranges must use the same field, got "{UID}" and "{NAMESPACE}"',
        ),
        ("shardRange(" * 10_000, "expression is too long"),
    ],
)
def test_invalid_selector_is_a_500(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_shard_selector(text)
    assert caught.value.code == 500
    assert caught.value.message.startswith("invalid shard selector: ")
    assert message in caught.value.message


def test_ranges_are_of_the_fnv_1a_hash() -> None:
    # 64-bit FNV-1a of "a" is af63dc4c8601ec8c, a vector of its specification.
    record = record_of(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "n", "namespace": "x", "uid": "a"},
        },
        1,
    )
    matching = shard_range(start="0xaf63dc4c8601ec8c", end="0xaf63dc4c8601ec8d")
    assert parse_shard_selector(matching).matches(record)
    assert not parse_shard_selector(shard_range(start=ZERO, end="0xaf63dc4c8601ec8c")).matches(
        record
    )
    assert parse_shard_selector(f"{shard_range()} || {matching}").matches(record)


def test_feature_gates_of_a_version() -> None:
    assert set(enabled_features({GATE: True}, parse_version("1.36"))) == {GATE}
    assert not enabled_features({GATE: False}, parse_version("1.36"))
    with pytest.raises(ValueError, match=r"'ShardedListAndWatch': must be one of .* v1.35.0: none"):
        enabled_features({GATE: True}, parse_version("1.35"))
    assert parse_feature_gates(["A=true", " B = F"]) == {"A": True, "B": False}
    with pytest.raises(ValueError, match="must be NAME=true or NAME=false"):
        parse_feature_gates(["A=yes"])


async def test_lists_and_watches_contain_only_the_shard() -> None:
    halves = [shard_range(), shard_range(start=HALF, end=END)]
    async with (
        ControlPlane.embedded(feature_gates={GATE: True}, controllers=()) as plane,
        APIClient(plane) as api,
    ):
        for number in range(16):
            await api.post(CONFIG_MAPS, config_map(f"c{number}"))
        found = []
        for half in halves:
            page = (await api.get(CONFIG_MAPS, {"shardSelector": half})).body
            assert page["metadata"]["shardInfo"] == {"selector": half}
            names = {item["metadata"]["name"] for item in page["items"]}
            found.append(names)
            async with api.watch(
                CONFIG_MAPS, {"shardSelector": half, "timeoutSeconds": "1"}
            ) as watch:
                assert {name for _, name in await watch.summary(len(names))} == names
        assert found[0] | found[1] == {f"c{number}" for number in range(16)}
        assert not found[0] & found[1]
        assert (await api.get(CONFIG_MAPS, {"shardSelector": "?"})).code == 500


async def test_selector_is_ignored_without_the_feature() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        page = (await api.get("/api/v1/namespaces", {"shardSelector": "?"})).body
        assert "shardInfo" not in page["metadata"]
        assert page["items"]
