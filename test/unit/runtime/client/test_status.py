"""The status is written to no other object with the same name, of dicts and of typed objects."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cfo.runtime import APIModel, CustomResource, Int32
from cfo.runtime.client import Client, apply_status
from cfo.runtime.client.errors import InternalError
from cfo.runtime.objects import InvalidResource
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object


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


async def test_status_of_a_dict_that_is_no_mapping_is_refused() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match="apply_status: status: 5: must be a mapping"):
        await apply_status(cast("Client", Recorder()), STORED, wrong)


async def test_status_that_does_not_fit_the_class_is_refused() -> None:
    recorder = Recorder()
    website = Website.decode(dict(STORED))
    with pytest.raises(InvalidResource, match="readyReplicas"):
        await apply_status(cast("Client", recorder), website, {"readyReplicas": "many"})
    assert not recorder.applied


class FullObject(Recorder):
    """A client whose object accepts no apply, because its managedFields fill it."""

    def __init__(self) -> None:
        super().__init__()
        self.patched: list[Any] = []

    async def apply(self, obj: Object, **options: Any) -> Object:
        message = "etcdserver: request is too large"
        raise InternalError(500, {"message": message}, verb="apply", resource="websites")

    async def patch(self, gvk: GVK, key: NamespacedName, body: Any, **options: Any) -> Object:
        self.patched.append((key, body, options))
        return {**STORED, **body}


async def test_status_is_written_although_managed_fields_fill_the_object() -> None:
    client = FullObject()
    stored = await apply_status(cast("Client", client), STORED, {"readyReplicas": 3})
    assert stored["status"] == {"readyReplicas": 3}
    options = {"uid": "u1", "subresource": "status"}
    status = {"status": {"readyReplicas": 3}}
    assert client.patched == [(NamespacedName("ns", "site"), status, options)]
