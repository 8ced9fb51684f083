"""Configuration files, and when their changes restart pods."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from cfo.api.inferencestack.names import ADOPTED_CONFIG_HASH, CONFIG_HASH, CONFIG_KEY
from cfo.api.inferencestack.profiles import PROFILES, newest_profile
from cfo.api.inferencestack.resolution import resolve
from cfo.controllers.inferencestack.rendering.config_file import (
    ConfigAnnotations,
    application_file,
    config_annotations,
    gateway_file,
)
from cfo.controllers.inferencestack.rendering.facts import (
    LiveDeployment,
    StoredConfig,
    config_hash,
)
from test.support.inference_stacks import stack

V2 = newest_profile("v2")


def reader_file(config: dict[str, Any]) -> str:
    return application_file(resolve(stack({"a": {"readerConfig": config}}), V2), "a")


def value_in_file(value: Any) -> str:
    (line,) = [
        line for line in reader_file({"x": value}).splitlines() if line.startswith("      x:")
    ]
    return line.removeprefix("      x: ")


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (True, "true"),
        (8, "8"),
        (0.5, "0.5"),
        (2.0, "2"),
        ("unsloth/Llama-3.2-1B-Instruct", "unsloth/Llama-3.2-1B-Instruct"),
        ("8", "8"),  # the reader expects a number; Helm prints no quotes
        ("yes", "yes"),
        ("", ""),
        ("0,1", "0,1"),
        ("90%", "90%"),
        ("[a, b]", "[a, b]"),  # a list
        ("http://x:80/a", "http://x:80/a"),
        ("yes: no", '"yes: no"'),
        ("a #b", '"a #b"'),
        ("a:", '"a:"'),
        ("- a", '"- a"'),
        ("-a", "-a"),
        ("*a", '"*a"'),
        ("{a: b}", '"{a: b}"'),
        (" a ", '" a "'),
        ("a\nb: c", '"a\\nb: c"'),
        ("'", '"\'"'),
        ("é\x85\u2028", '"é\\u0085\\u2028"'),
    ],
)
def test_value_is_printed_as_by_helm_unless_it_would_break_the_file(
    value: Any, printed: str
) -> None:
    assert value_in_file(value) == printed


def test_any_string_is_one_value_of_its_key() -> None:
    rng = random.Random(7)
    alphabet = "ab:# -\t\n\r\"'[]{},&*!|>%@`\\?~\x00\x85é\u2028\ufeff😀01.eE+_=<"
    for _ in range(3000):
        value = "".join(rng.choice(alphabet) for _ in range(rng.randrange(8)))
        document = yaml.load(
            reader_file({"x": value, "y": 1}), Loader=yaml.CBaseLoader
        )  # all scalars as strings
        reader = document["takeoff"]["readers_config"]["a"]
        assert (reader["y"], list(document)) == ("1", ["takeoff"])
        assert reader["x"] == value or isinstance(reader["x"], list), value


def test_keys_are_sorted_before_they_are_converted() -> None:
    config = resolve(stack(gateway={"config": {"bodySizeLimitBytes": 1, "aB": 2, "a_a": 3}}), V2)
    assert gateway_file(config).splitlines()[2:6] == [
        "    a_b: 2",
        "    a_a: 3",
        "    body_size_limit_bytes: 1",
        "    internal_port: 3005",
    ]


def test_gateway_address_can_be_set_and_its_position_depends_on_the_profile() -> None:
    obj = stack({"a": {"readerConfig": {"internalGatewayIp": "gw", "aFirst": 1}}})
    assert application_file(resolve(obj, V2), "a").splitlines()[5:7] == [
        "      internal_gateway_ip: gw",
        "      a_first: 1",
    ]
    lines = application_file(resolve(obj, PROFILES["v2.1"]), "a").splitlines()
    assert lines[5:10] == [
        "      a_first: 1",
        "      buffer_requests: true",
        "      consumer_group: primary",
        "      device: cpu",
        "      internal_gateway_ip: gw",
    ]


def test_reference_to_the_access_token_is_not_in_the_file() -> None:
    assert "access_token" not in reader_file(
        {"accessTokenSecretRef": {"name": "hf", "key": "token"}}
    )


OLD, NEW = "old\n", "new\n"


def stored(content: str, annotations: dict[str, str] | None = None) -> StoredConfig:
    return StoredConfig.of(
        {"metadata": {"annotations": annotations or {}}, "data": {CONFIG_KEY: content}}
    )


def adopted(**labels: str) -> LiveDeployment:
    return LiveDeployment(labels=labels)


@pytest.mark.parametrize(
    ("deployment", "config_map", "template", "metadata"),
    [
        # not created yet, or created by us: the hash is always in the pod template
        (None, None, {CONFIG_HASH: config_hash(NEW)}, {}),
        (
            LiveDeployment(template_annotations={CONFIG_HASH: "x"}),
            stored(OLD),
            {CONFIG_HASH: config_hash(NEW)},
            {},
        ),
        # created by Helm, with the same content: nothing restarts, and the content is remembered
        (adopted(), stored(NEW), {}, {ADOPTED_CONFIG_HASH: config_hash(NEW)}),
        (
            adopted(),
            stored(NEW, {ADOPTED_CONFIG_HASH: config_hash(NEW)}),
            {},
            {ADOPTED_CONFIG_HASH: config_hash(NEW)},
        ),
        # created by Helm, and changed: also if only the ConfigMap was written before a crash
        (
            adopted(),
            stored(OLD),
            {CONFIG_HASH: config_hash(NEW)},
            {ADOPTED_CONFIG_HASH: config_hash(OLD)},
        ),
        (
            adopted(),
            stored(NEW, {ADOPTED_CONFIG_HASH: config_hash(OLD)}),
            {CONFIG_HASH: config_hash(NEW)},
            {ADOPTED_CONFIG_HASH: config_hash(OLD)},
        ),
        # the ConfigMap was deleted: the Deployment remembers the content
        (
            adopted(**{ADOPTED_CONFIG_HASH: config_hash(NEW)}),
            None,
            {},
            {ADOPTED_CONFIG_HASH: config_hash(NEW)},
        ),
        (adopted(), None, {CONFIG_HASH: config_hash(NEW)}, {}),
    ],
)
def test_pods_restart_only_if_their_configuration_changes(
    deployment: LiveDeployment | None,
    config_map: StoredConfig | None,
    template: dict[str, str],
    metadata: dict[str, str],
) -> None:
    assert config_annotations(NEW, deployment, config_map) == ConfigAnnotations(template, metadata)
