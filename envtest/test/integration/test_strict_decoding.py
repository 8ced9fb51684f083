"""Strict decoding of bodies: duplicate keys and unknown fields, in the order and words of kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.api_client import APIClient
from test.support.config_maps import CONFIG_MAPS

STRICT = {"fieldValidation": "Strict"}
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def problems(body: Any) -> str:
    """Return the errors in a response, without their introduction."""
    message: str = body["message"]
    return message.partition("strict decoding error: ")[2]


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"name":"a"},"data":{"a":"1","a":"2"}}',
        b'{"kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1","a":"2"}}',
        b' {"metadata"\t: {"name":"a"},"data"  :{"a":"1","a"\t:"2"}}',
    ],
)
async def test_duplicates_are_found_without_an_identity(api: APIClient, body: bytes) -> None:
    refused = await api.post(CONFIG_MAPS, body, STRICT)
    assert refused.code == 400, refused.body
    assert problems(refused.body) == 'duplicate field "data.a"'


async def test_bodies_without_an_identity_are_accepted(api: APIClient) -> None:
    created = await api.post(
        CONFIG_MAPS, b' {"metadata":{"name":"bare"},"data":{"a":"b:c"}}', STRICT
    )
    assert created.code == 201, created.body
    assert (await api.post(CONFIG_MAPS, b"{}", STRICT)).code == 422


async def test_errors_are_in_the_order_of_the_document(api: APIClient) -> None:
    container = b'{"name":"c","image":"i","unknownNested":1,"imagePullPolicy":"Always","imagePullPolicy":"Never"}'
    spec = b'"unknown1":1,"unknownDupe":{"a":1,"a":2},"unknownDupe":2,"paused":true,"paused":false,'
    spec += (
        b'"selector":{"matchLabels":{"a":"b","a":"b"}},"template":{"spec":{"containers":['
        + container
        + b"]}}"
    )
    body = (
        b'{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"a"},"spec":{'
        + spec
        + b"}}"
    )
    refused = await api.post(DEPLOYMENTS, body, STRICT)
    assert problems(refused.body).split(", ") == [
        'unknown field "spec.unknown1"',
        'unknown field "spec.unknownDupe"',
        'duplicate field "spec.paused"',
        'duplicate field "spec.selector.matchLabels.a"',
        'unknown field "spec.template.spec.containers[0].unknownNested"',
        'duplicate field "spec.template.spec.containers[0].imagePullPolicy"',
    ]


async def test_at_most_100_errors_are_listed(api: APIClient) -> None:
    fields = {f"unknown{number}": number for number in range(120)}
    refused = await api.post(CONFIG_MAPS, {"metadata": {"name": "a"}, **fields}, STRICT)
    assert len(problems(refused.body).split(", ")) == 100


async def test_duplicates_in_token_requests_are_found(api: APIClient) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts"
    await api.post(path, {"metadata": {"name": "robot"}})
    body = b'{"spec":{"audiences":["a"],"audiences":["b"]}}'
    refused = await api.post(f"{path}/robot/token", body, STRICT)
    assert (refused.code, problems(refused.body)) == (400, 'duplicate field "spec.audiences"')


async def test_duplicates_in_nested_bodies_are_found(api: APIClient) -> None:
    depth = 150
    nested = b'{"x":' * depth + b'{"a":1,"a":2,"a":3}' + b"}" * depth
    body = b'{"metadata":{"name":"deep"},"unknown":' + nested + b',"data":{"b":"1","b":"2"}}'
    refused = await api.post(CONFIG_MAPS, body, STRICT)
    assert refused.code == 400
    assert problems(refused.body) == 'unknown field "unknown", duplicate field "data.b"'
