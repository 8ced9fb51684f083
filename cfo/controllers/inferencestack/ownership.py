"""What exists of a stack: which objects belong to it, their managedFields, and the facts that rendering must know.

An object that another client created is never changed or deleted. An object that Helm created for the stack is taken
over, with the fields that Helm owns: otherwise a field that is later removed from the stack would remain, because Helm
still owns it.

Objects are read from their informers. What is not there is read from the API server: Helm may have created it, and only
the API server has the managedFields of other clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
from anyio.lowlevel import checkpoint

from cfo.api.inferencestack.names import (
    AUTOSCALED,
    CHART_LABEL,
    CHART_NAME,
    CONFIG_HASH,
    FIELD_MANAGER,
    HELM_RELEASE_NAME,
    INSTANCE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    SCALED_BY_OTHERS,
    is_retained,
    names_of,
)
from cfo.controllers.inferencestack.children import StackInformers
from cfo.controllers.inferencestack.rendering.facts import Facts, LiveDeployment, StoredConfig
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    Client,
    NamespacedName,
    Object,
    annotations_of,
    controller_of,
    gvk_of,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)

_CHART: Final = re.compile(rf"{CHART_NAME}-[0-9].*")
"""The values of the label ``helm.sh/chart`` on objects of the original chart: its name and version."""

_MAX_ENCODED_BYTES: Final = 256 << 10
"""The maximum JSON of a Deployment that is kept, and of all objects that are kept decoded. A reconcile reads the others
once more."""

_IDENTITY: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
)
"""The metadata that identifies the state of an object."""


def belongs_to(obj: Object, stack: Object) -> bool:
    """Return whether ``obj`` belongs to ``stack``: it is controlled by it, its retained volume, or of its release.

    Another chart's release can have the name of a stack, so the chart's label counts as well.
    """
    controller = controller_of(obj)
    if controller is not None:
        return bool(controller.get("uid") == uid_of(stack))
    labels = labels_of(obj)
    if labels.get(INSTANCE_LABEL) != name_of(stack):
        return False
    return (is_retained(obj) and labels.get(MANAGED_BY_LABEL) == MANAGED_BY) or (
        _is_of_chart(obj) and annotations_of(obj).get(HELM_RELEASE_NAME) == name_of(stack)
    )


def _is_of_chart(obj: Object) -> bool:
    """Return whether the labels of ``obj`` are those of an object that Helm created from the original chart."""
    labels = labels_of(obj)
    return (
        labels.get(MANAGED_BY_LABEL) == "Helm"
        and _CHART.fullmatch(labels.get(CHART_LABEL) or "") is not None
    )


def is_of_helm(obj: Object) -> bool:
    """Return whether Helm created ``obj``, and still owns fields of it."""
    return any(_is_of_helm(entry) for entry in managers_of(obj))


def taken_over(obj: Object) -> list[dict[str, Any]]:
    """Return the managedFields of ``obj`` after our field manager has taken over all fields that Helm owns.

    The annotations of a Deployment stay with Helm, and so on the object.
    """
    entries = managers_of(obj)
    helm = [entry for entry in entries if _is_of_helm(entry)]
    own = [entry for entry in entries if _is_own(entry)]
    others = [entry for entry in entries if entry not in helm and entry not in own]
    keeps_annotations = (
        gvk_of(obj) == DEPLOYMENT
    )  # removing annotations of a Deployment changes its generation
    fields: dict[str, Any] = {}
    for entry in (*helm, *own):
        taken = dict(entry.get("fieldsV1") or {})
        if keeps_annotations and entry in helm:
            metadata = taken["f:metadata"]
            others.append(
                {**entry, "fieldsV1": {"f:metadata": {"f:annotations": metadata["f:annotations"]}}}
            )
            taken["f:metadata"] = {
                key: value for key, value in metadata.items() if key != "f:annotations"
            }
        fields = _union(fields, taken)
    latest = (own or helm)[0]
    merged = {
        "manager": FIELD_MANAGER,
        "operation": "Apply",
        "apiVersion": latest.get("apiVersion"),
        "time": latest.get("time"),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return [*others, {key: value for key, value in merged.items() if value is not None}]


def owns_replicas(managers: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether our field manager owns ``spec.replicas`` of a Deployment, or will after :func:`taken_over`."""
    return any(_has_replicas(entry) for entry in managers if _is_own(entry) or _is_of_helm(entry))


def is_autoscaled(managers: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether an autoscaler set ``spec.replicas`` of a Deployment: through its subresource ``scale``.

    A HorizontalPodAutoscaler does so as ``kube-controller-manager``. Users do so as well, with ``kubectl scale``.
    """
    return any(
        _has_replicas(entry)
        for entry in managers
        if entry.get("subresource") == "scale" and entry.get("manager") != "kubectl"
    )


def _has_replicas(entry: Mapping[str, Any]) -> bool:
    return "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})


def managers_of(obj: Object) -> Sequence[dict[str, Any]]:
    """Return the managedFields of ``obj``."""
    found: Sequence[dict[str, Any]] = (obj.get("metadata") or {}).get("managedFields") or ()
    return found


def _is_own(entry: Mapping[str, Any]) -> bool:
    return (
        entry.get("manager") == FIELD_MANAGER
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    )


def _is_of_helm(entry: Mapping[str, Any]) -> bool:
    """Return whether a manager owns the annotation that Helm sets; its name depends on the program that used Helm."""
    if entry.get("operation") != "Update" or entry.get("subresource"):
        return False
    metadata = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
    return f"f:{HELM_RELEASE_NAME}" in (metadata.get("f:annotations") or {})


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(one)
    for key, value in other.items():
        result[key] = _union(result[key], value) if key in result else value
    return result


class StoredDeployments(Mapping[str, Object]):
    """The Deployments of a stack by name. Each access decodes one.

    They are kept as JSON, which the cache shares: all of them decoded could take more than a gigabyte, because users
    can add fields to them.
    """

    def __init__(self) -> None:
        self._json: dict[str, bytes] = {}

    def store(self, name: str, deployment: Object, encoded: bytes) -> None:
        """Add a Deployment, or replace it; ``encoded`` is its JSON. Of a large one, only the facts are kept."""
        if len(encoded) > _MAX_ENCODED_BYTES:
            encoded = orjson.dumps(without_pods(deployment))
        self._json[name] = encoded

    def __getitem__(self, name: str) -> Object:
        decoded: Object = orjson.loads(self._json[name])
        return decoded

    def __iter__(self) -> Iterator[str]:
        return iter(self._json)

    def __len__(self) -> int:
        return len(self._json)


def without_pods(obj: Object) -> Object:
    """Return of an object only what identifies it, and of a Deployment what its facts and its status are read from."""
    metadata = obj["metadata"]
    kept: Object = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {name: metadata[name] for name in _IDENTITY if name in metadata},
    }
    controller = controller_of(obj)
    if controller is not None:
        kept["metadata"]["ownerReferences"] = [controller]
    if gvk_of(obj) == DEPLOYMENT:
        live = LiveDeployment.of(obj)
        kept["metadata"]["labels"] = live.labels
        template = {"labels": live.template_labels, "annotations": live.template_annotations}
        kept["spec"] = {"replicas": live.replicas, "template": {"metadata": template}}
        kept["status"] = obj.get("status") or {}
    return kept


@dataclass(slots=True)
class StackObservation:
    """The existing objects of a stack: its Deployments by name, and the facts for rendering.

    ``uncached`` are those that were read from the API server, because they are not in their informers, up to
    :data:`_MAX_ENCODED_BYTES` in all. ``has_uncached``: whether there are any.
    """

    deployments: StoredDeployments = field(default_factory=StoredDeployments)
    facts: Facts = field(default_factory=Facts)
    uncached: dict[tuple[GVK, NamespacedName], Object] = field(default_factory=dict)
    has_uncached: bool = False
    _uncached_bytes: int = 0

    def add_uncached(self, obj: Object, encoded: bytes) -> None:
        """Record an object that was read from the API server, and ``encoded``, its JSON."""
        self.has_uncached = True
        self._uncached_bytes += len(encoded)
        if self._uncached_bytes <= _MAX_ENCODED_BYTES:
            self.uncached[gvk_of(obj), key_of(obj)] = obj


def application_names(stack: Object) -> list[str]:
    """Return the sorted names of the applications of ``stack``, whose spec can be invalid."""
    applications = (stack.get("spec") or {}).get("applications")
    return sorted(applications) if isinstance(applications, Mapping) else []


async def observe(client: Client, children: StackInformers, stack: Object) -> StackObservation:
    """Return what exists of ``stack``, which must be valid."""
    found = StackObservation()
    names = names_of(stack)
    deployments: dict[str, LiveDeployment] = {}
    config_maps: dict[str, StoredConfig] = {}
    applications = [names.application(application) for application in application_names(stack)]
    for name in [names.gateway, *applications]:
        await checkpoint()  # a large Deployment takes milliseconds
        key = NamespacedName(namespace_of(stack), name)
        read = await _read(client, children, DEPLOYMENT, key, found)
        if read is None or not belongs_to(read.obj, stack):
            continue
        obj, encoded, managers = read
        found.deployments.store(name, obj, encoded)
        deployments[name] = LiveDeployment.of(
            obj,
            owns_replicas=owns_replicas(managers),
            is_autoscaled=await _is_scaled_by_others(client, key, obj, managers),
        )
        if CONFIG_HASH in deployments[name].template_annotations:
            continue
        config_map = await _read(client, children, CONFIG_MAP, key, found)
        if config_map is not None and belongs_to(config_map.obj, stack):
            config_maps[name] = StoredConfig.of(config_map.obj)
    found.facts = Facts(served=children.served, deployments=deployments, config_maps=config_maps)
    return found


class _Read(NamedTuple):
    """An object, its JSON, and its managedFields: from an informer, only those of our own field managers."""

    obj: Object
    encoded: bytes
    managers: Iterable[Mapping[str, Any]]


async def _read(
    client: Client, children: StackInformers, gvk: GVK, key: NamespacedName, found: StackObservation
) -> _Read | None:
    """Return an object; ``None`` if it does not exist."""
    entry = children.entry(gvk, key)
    if entry is not None:
        return _Read(entry.object(), entry.raw, entry.managers)
    obj = await client.get(gvk, key, live=True)
    if obj is None:
        return None
    encoded = orjson.dumps(obj)
    found.add_uncached(obj, encoded)
    return _Read(obj, encoded, managers_of(obj))


async def _is_scaled_by_others(
    client: Client, key: NamespacedName, deployment: Object, managers: Iterable[Mapping[str, Any]]
) -> bool:
    """Return whether an autoscaler that does not belong to the stack set the number of replicas, if it is not known.

    It is known if our field manager owns the number, or if a label says who sets it.
    """
    if owns_replicas(managers) or not labels_of(deployment).keys().isdisjoint(
        (AUTOSCALED, SCALED_BY_OTHERS)
    ):
        return False
    if "managedFields" not in deployment["metadata"]:
        deployment = await client.get(DEPLOYMENT, key, live=True) or deployment
    return is_autoscaled(managers_of(deployment))
