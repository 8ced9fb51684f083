"""The network of cluster IPs."""

from __future__ import annotations

import re

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.configuration.service_network import parse_service_network

SERVICES = "/api/v1/namespaces/default/services"


@pytest.mark.parametrize("text", ["10.0.0.0/29", "10.96.0.0/12", "10.0.0.0/255.255.0.0"])
def test_networks_of_allowed_sizes_are_accepted(text: str) -> None:
    assert parse_service_network(text).prefixlen in (29, 12, 16)


@pytest.mark.parametrize(
    "text", ["x", "10.0.0.0/30", "10.0.0.0/11", "10.0.0.1/24", "fd00::/108", "10.0.0.0"]
)
def test_invalid_networks_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text.partition("/")[0])):
        parse_service_network(text)


async def test_services_get_addresses_of_the_configured_network() -> None:
    async with (
        ControlPlane.embedded(controllers=(), service_cluster_ip_range="10.96.0.0/29") as plane,
        APIClient(plane) as api,
    ):

        async def create(name: str, **spec: str) -> tuple[int, str]:
            service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
            response = await api.post(SERVICES, {"apiVersion": "v1", "kind": "Service", **service})
            return response.code, response.body.get("message") or response.body["spec"]["clusterIP"]

        assert (await api.get(f"{SERVICES}/kubernetes")).body["spec"]["clusterIP"] == "10.96.0.1"
        created = [await create(f"s-{number}") for number in range(5)]
        assert created == [(201, f"10.96.0.{number}") for number in range(2, 7)]
        code, message = await create("full")
        assert (code, message.endswith("range is full")) == (500, True)
        code, message = await create("other", clusterIP="10.0.0.7")
        assert (code, "does not match the current range" in message) == (422, True)
