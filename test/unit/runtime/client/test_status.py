"""The status is written to no other object with the same name, of dicts and of typed objects."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cfo.runtime import APIModel, CustomResource, Int32
from cfo.runtime.client import Client, apply_status
from cfo.runtime.objects import InvalidResource
from cfo.runtime.objects.unstructured import Object


class WebsiteStatus(APIModel):
    ready_replicas: Int32 = 0


class Website(CustomResource, group="example.com", version="v1"):
    status: WebsiteStatus | None = None


STORED = {
    "apiVersion": "example.com/v1",
    "kind": "Website",
    "metadata": {"namespace": "ns", "name": "site", "uid": "u1", "labels": {"a": "b"}},
}
APPLIED = {
    "apiVersion": "example.com/v1",
    "kind": "Website",
    "metadata": {"namespace": "ns", "name": "site", "uid": "u1"},
    "status": {"readyReplicas": 3},
}


class Recorder:
    """A client that returns what it is asked to apply."""

    def __init__(self) -> None:
        self.applied: list[Object] = []

    async def apply(self, obj: Object, **options: Any) -> Object:
        assert options == {"subresource": "status", "force": True}
        self.applied.append(obj)
        return obj


@pytest.mark.parametrize("status", [WebsiteStatus(ready_replicas=3), {"readyReplicas": 3}])
async def test_status_of_a_typed_object_has_its_uid(status: Any) -> None:
    recorder = Recorder()
    written = await apply_status(cast("Client", recorder), Website.decode(dict(STORED)), status)
    assert recorder.applied == [APPLIED]
    assert isinstance(written, Website)
    assert written.status is not None
    assert written.status.ready_replicas == 3


async def test_status_of_a_dict_has_its_uid() -> None:
    recorder = Recorder()
    written = await apply_status(cast("Client", recorder), STORED, {"readyReplicas": 3})
    assert recorder.applied == [APPLIED]
    assert written == APPLIED


async def test_status_that_does_not_fit_the_class_is_refused() -> None:
    recorder = Recorder()
    website = Website.decode(dict(STORED))
    with pytest.raises(InvalidResource, match="readyReplicas"):
        await apply_status(cast("Client", recorder), website, {"readyReplicas": "many"})
    assert not recorder.applied
