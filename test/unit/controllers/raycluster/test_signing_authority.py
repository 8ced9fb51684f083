"""Which CA signs the certificates of a RayCluster's pods."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cfo.api.raycluster.names import names_of
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.node_request import Refusal
from cfo.controllers.raycluster.node_signer import SigningCAs
from cfo.runtime.objects.unstructured import Object, owner_reference
from test.support.raycluster_environment import ray_cluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class _Stored:
    """A client, and the reader of its cache, that return one object."""

    def __init__(self, obj: Object) -> None:
        self._obj = obj

    def get(self, _key: object, *_: object, **options: object) -> Any:
        async def found() -> Object:
            return self._obj

        return found() if options else self._obj


def stored_ca(cluster: Object, created: datetime) -> Any:
    """Return a client that has the Secret of ``cluster`` with a CA of that date."""
    metadata = {
        "name": names_of(cluster).ca_secret,
        "namespace": "ns",
        "uid": "secret",
        "resourceVersion": "1",
        "ownerReferences": [owner_reference(cluster)],
    }
    content = ca.create("ecdsa", now=created).data()
    data = {name: b64encode(value).decode() for name, value in content.items()}
    return _Stored({"metadata": metadata, "data": data})


async def test_ca_of_a_deleted_cluster_does_not_sign_for_another_one_of_its_name() -> None:
    former, cluster = ray_cluster(), ray_cluster()
    former["metadata"]["uid"], cluster["metadata"]["uid"] = "former", "current"
    stored = stored_ca(former, NOW)
    authorities = SigningCAs(stored, stored)
    await authorities.load(former, now=NOW)
    with pytest.raises(Refusal) as refusal:
        await authorities.load(cluster, now=NOW)
    assert refusal.value.may_change


async def test_ca_does_not_sign_before_or_after_it_is_valid() -> None:
    cluster = ray_cluster()
    cluster["metadata"]["uid"] = "current"
    was_ahead = NOW + timedelta(hours=12)
    stored = stored_ca(cluster, was_ahead)
    authorities = SigningCAs(stored, stored)
    await authorities.load(cluster, now=was_ahead)
    for now in (NOW, was_ahead + ca.CA_LIFETIME):
        with pytest.raises(Refusal, match="valid only from") as refusal:
            await authorities.load(cluster, now=now)
        assert refusal.value.may_change
