"""What happens if an object with the name of a component exists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cfo.controllers.appwrapper.component_informers import ComponentInformers
from cfo.controllers.appwrapper.reconciler import ComponentCreator
from cfo.runtime import AlreadyExists, Client, Object, uid_of
from test.support.observations import CONFIG, observe, wrapper

WRAPPER = wrapper("Pod")


async def _found(*_: object) -> Any:
    return SimpleNamespace(namespaced=True)


class TakenClient:
    """The API server of a cluster in which each object exists, with this metadata; ``None``: no longer when read."""

    mapper = SimpleNamespace(resource=_found)

    def __init__(self, metadata: Object | None) -> None:
        self._metadata = metadata

    async def create(self, _: Object) -> Object:
        raise AlreadyExists(409, {"message": "already exists"})

    async def get(self, gvk: object, key: object, *, live: bool) -> Object | None:
        assert live
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata} if self._metadata is not None else None


def owned_by(uid: str, name: str = "", **metadata: Any) -> Object:
    owner = {"kind": "AppWrapper", "name": name or WRAPPER["metadata"]["name"], "uid": uid, "controller": True}
    return {"name": "c", "uid": "x", "ownerReferences": [owner], **metadata}


@pytest.mark.parametrize(
    ("metadata", "error", "fatal"),
    [
        (owned_by(uid_of(WRAPPER)), "", False),
        (owned_by(uid_of(WRAPPER), deletionTimestamp="now"), "is being deleted", False),
        (owned_by("predecessor"), "exists, but is not controlled by appwrapper", False),
        (owned_by("other", "other"), "exists, but is not controlled by appwrapper", True),
        ({"name": "c"}, "exists, but is not controlled by appwrapper", True),
        (None, "already exists", False),
    ],
)
async def test_existing_object_is_used_only_if_the_appwrapper_created_it(
    metadata: Object | None, error: str, fatal: bool
) -> None:
    informers = cast("ComponentInformers", SimpleNamespace(synced=_found))
    creator = ComponentCreator(cast("Client", TakenClient(metadata)), CONFIG, informers)
    (creation,) = await creator.create_missing(observe(WRAPPER))
    assert creation.error.endswith(error)
    assert bool(creation.error) is bool(error)
    assert creation.fatal is fatal
    assert creation.uid == ("" if error else "x")
