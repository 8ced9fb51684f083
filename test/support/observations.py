"""AppWrappers and observations of them, for tests of decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cfo.api.appwrapper.names import ANNOTATION_PREFIX
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.appwrapper_settings import Settings
from cfo.controllers.appwrapper.components import ComponentObject, components_of
from cfo.controllers.appwrapper.decision import WrapperDecision, WrapperObservation
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.appwrapper.workload import has_queue
from cfo.runtime.objects.unstructured import NamespacedName, Object

NOW = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
UID = "11111111-2222-3333-4444-555555555555"

CONFIG = AppWrapperConfiguration(enabled=True)


def wrapper(
    *kinds: str, suspend: bool = False, status: Object | None = None, **annotations: str
) -> Object:
    """Return an AppWrapper with one component per item of ``kinds`` (``WrapperPod`` or ``Job``); a Pod by default."""
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    templates: dict[str, Object] = {
        "Pod": {"apiVersion": "v1", "kind": "Pod", "spec": spec},
        "Job": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": spec}}},
    }
    components = [
        {"template": {**templates[kind], "metadata": {"name": f"{kind.lower()}-{index}"}}}
        for index, kind in enumerate(kinds or ("Pod",))
    ]
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {
            "namespace": "ns",
            "name": "w",
            "uid": UID,
            "annotations": {ANNOTATION_PREFIX + key: value for key, value in annotations.items()},
        },
        "spec": {"suspend": suspend, "components": components},
        **({"status": status} if status is not None else {}),
    }


def observe(
    obj: Object,
    *,
    objects: list[ComponentObject | None] | None = None,
    pods: list[WrapperPod] | None = None,
    owned: bool = True,
    now: datetime = NOW,
    **fields: Any,
) -> WrapperObservation:
    """Return an observation of ``obj``; by default every component exists, with the uid ``c-`` and its index.

    Pods descend from the first component, unless they have another ancestor.
    """
    components = components_of(obj)
    existing = (
        objects
        if objects is not None
        else [ComponentObject(uid=f"c-{item.index}") for item in components]
    )
    first = next((found.uid for found in existing if found is not None), UID) if owned else ""
    return WrapperObservation(
        wrapper=obj,
        components=components,
        objects=existing,
        pods=[
            replace(
                pod,
                key=NamespacedName("ns", f"p{index}"),
                uid=f"pod-{index}",
                ancestor=pod.ancestor or first,
            )
            for index, pod in enumerate(pods or ())
        ],
        settings=Settings.of(obj, CONFIG.fault_tolerance),
        now=now,
        monotonic=(now - NOW).total_seconds(),
        is_queued=has_queue(obj),
        **fields,
    )


def with_decided_status(obj: Object, decision: WrapperDecision) -> Object:
    """Return ``obj`` with the status of ``decision``."""
    return {**obj, "status": decision.status.as_object()}


def seconds_later(seconds: float) -> datetime:
    """Return the time ``seconds`` after :data:`NOW`."""
    return NOW + timedelta(seconds=seconds)
