"""The lists of pods that controllers request, with metadata that a tenant has made large."""

from __future__ import annotations

import pytest

from cfo.controllers.pod_lists import list_pods
from cfo.runtime import Client
from cfo.runtime.client import (
    ClientConfig,
    Exchange,
    ResponseTooLarge,
    RESTMapper,
    Transport,
    pages,
)
from cfo.runtime.objects.unstructured import Object
from envtest import ControlPlane

_NUMBER = 12


def large_pod(number: int) -> Object:
    """Return a pod with 10 kB of annotations."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:02}",
            "namespace": "default",
            "annotations": {"large": "x" * 10_000},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


async def test_pods_are_listed_in_small_pages_after_a_page_that_is_too_large(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanges: list[Exchange] = []
    config = ClientConfig.for_control_plane(plane)
    async with Transport(config, observe=exchanges.append) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="test")
        for number in range(_NUMBER):
            await client.create(large_pod(number))
        monkeypatch.setattr(pages, "_MAX_PAGE_BYTES", 115_000)
        exchanges.clear()
        found = await list_pods(client, "default")
        assert sorted(pod.name for pod in found) == [f"pod-{at:02}" for at in range(_NUMBER)]
        assert len(exchanges) == 2 + 2, "pages of 100, 50 and 10"
        monkeypatch.setattr(pages, "_MAX_PAGE_BYTES", 20_000)
        exchanges.clear()
        assert len(await list_pods(client, "default")) == _NUMBER
        assert len(exchanges) == 3 + _NUMBER + 1, "after ten pages of one pod, one of ten"
        monkeypatch.setattr(pages, "_MAX_PAGE_BYTES", 2_000)
        exchanges.clear()
        with pytest.raises(ResponseTooLarge):
            await list_pods(client, "default")
        assert len(exchanges) == 4
