"""Which CA signs the certificates of a RayCluster's pods."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from cfo.api.raycluster.names import names_of
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.node_request import Refusal
from cfo.controllers.raycluster.node_signer import SigningCAs
from cfo.runtime.objects.unstructured import Object, owner_reference
from test.support.raycluster_environment import ray_cluster


class _Stored:
    """A client, and the reader of its cache, that return one object."""

    def __init__(self, obj: Object) -> None:
        self._obj = obj

    def get(self, _key: object, *_: object, **options: object) -> Any:
        async def found() -> Object:
            return self._obj

        return found() if options else self._obj


async def test_ca_of_a_deleted_cluster_does_not_sign_for_another_one_of_its_name() -> None:
    former, cluster = ray_cluster(), ray_cluster()
    former["metadata"]["uid"], cluster["metadata"]["uid"] = "former", "current"
    metadata = {
        "name": names_of(cluster).ca_secret,
        "namespace": "ns",
        "uid": "secret",
        "resourceVersion": "1",
    }
    data = {name: b64encode(value).decode() for name, value in ca.create("ecdsa").data().items()}
    stored: Any = _Stored(
        {"metadata": {**metadata, "ownerReferences": [owner_reference(former)]}, "data": data}
    )
    authorities = SigningCAs(stored, stored)
    await authorities.load(former)
    with pytest.raises(Refusal) as refusal:
        await authorities.load(cluster)
    assert refusal.value.may_change
