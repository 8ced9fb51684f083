"""Copies of prepared control planes, so that a set of CRDs, or the operator, is installed once and not for each test.

Installing the CRDs of the recordings takes 0.3 s, a copy of a control plane that has them 1 ms.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from cfo.runtime.client.client import connect
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.objects.unstructured import Object
from envtest import ControlPlane, EmbeddedControlPlane
from envtest.threaded import ThreadedControlPlane

_MAX_PREPARED: Final = 6
"""How many prepared control planes run; most modules use one or two."""

common_objects: list[Object] = []
"""Objects that all embedded control planes have, before those of :func:`new_plane`; a fixture may replace them."""

_prepared: OrderedDict[bytes, ThreadedControlPlane] = OrderedDict()


def new_plane(
    crds: Sequence[Object],
    controllers: Sequence[str] | None = None,
    *,
    embedded: bool = False,
    objects: Sequence[Object] = (),
) -> ControlPlane:
    """Return a control plane with these CRDs and controllers, which has yet to be started.

    It is the real one if ``$KUBEBUILDER_ASSETS`` is set, unless ``embedded``. The embedded one has ``objects``, too.
    """
    options: dict[str, Any] = {} if controllers is None else {"controllers": controllers}
    if os.environ.get("KUBEBUILDER_ASSETS") and not embedded:
        return ControlPlane.auto(crds=crds, **options)
    objects = [*common_objects, *objects]
    key = orjson.dumps([list(crds), controllers, objects])
    source = _prepared.get(key)
    if source is None:
        prepared = ControlPlane.embedded(crds=crds, plaintext=True, **options)
        source = ThreadedControlPlane(prepared)
        source.start()
        source.call(apply_all(prepared, objects))
        _prepared[key] = source
        if len(_prepared) > _MAX_PREPARED:
            _prepared.popitem(last=False)[1].stop()
    _prepared.move_to_end(key)
    copy = source.fork().plane
    assert isinstance(copy, EmbeddedControlPlane)
    return copy


async def apply_all(plane: ControlPlane, objects: Iterable[Object]) -> None:
    """Apply objects one after another, as ``kubectl apply --server-side`` does."""
    config = ClientConfig.for_control_plane(plane)
    async with connect(config, field_manager="kubectl") as client:
        for obj in objects:
            await client.apply(obj, force=False)


def local_config(plane: ControlPlane, *, token: str | None = None) -> ClientConfig:
    """Return the connection of a client in the process of the test: without TLS, if ``plane`` serves without.

    Each watch opens a connection, and TLS would take a third of the test's CPU time. Operators in their own process
    connect with TLS, and so do the tests of clients, caches and managers.
    """
    config = ClientConfig.for_control_plane(plane, token=token)
    if isinstance(plane, EmbeddedControlPlane) and plane.plaintext_url:
        return replace(config, server=plane.plaintext_url)
    return config
