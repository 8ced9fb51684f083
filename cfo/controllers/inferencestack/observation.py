"""What exists of a stack: its Deployments, and the facts that rendering must know.

Objects are read from their informers. What is not there is read from the API server: Helm may have created it, and only
the API server has the managedFields of other clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cfo.api.inferencestack.names import AUTOSCALED, CONFIG_HASH, SCALED_BY_OTHERS, names_of
from cfo.controllers.inferencestack.children import Children
from cfo.controllers.inferencestack.ownership import belongs_to, is_autoscaled, owns_replicas
from cfo.controllers.inferencestack.rendering import Facts, LiveConfigMap, LiveDeployment
from cfo.runtime import CONFIG_MAP, DEPLOYMENT, GVK, Client, NamespacedName, Object, labels_of, namespace_of


@dataclass(slots=True)
class Observation:
    """The existing objects of a stack: its Deployments by name, and the facts for rendering.

    ``uncached`` are those that were read from the API server, because they are not in their informers.
    """

    deployments: dict[str, Object] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    uncached: dict[tuple[GVK, NamespacedName], Object] = field(default_factory=dict)


def application_names(stack: Object) -> list[str]:
    """Return the sorted names of the applications of ``stack``, whose spec can be invalid."""
    applications = (stack.get("spec") or {}).get("applications")
    return sorted(applications) if isinstance(applications, Mapping) else []


async def observe(client: Client, children: Children, stack: Object) -> Observation:
    """Return what exists of ``stack``, which must be valid."""
    found = Observation()
    names = names_of(stack)
    deployments: dict[str, LiveDeployment] = {}
    config_maps: dict[str, LiveConfigMap] = {}
    for name in (names.gateway, *(names.application(name) for name in application_names(stack))):
        key = NamespacedName(namespace_of(stack), name)
        obj, managers = await _read(client, children, DEPLOYMENT, key, found)
        if obj is None or not belongs_to(obj, stack):
            continue
        found.deployments[name] = obj
        deployments[name] = LiveDeployment.of(
            obj, owns_replicas=owns_replicas(managers), is_autoscaled=await _is_autoscaled(client, key, obj, managers)
        )
        if CONFIG_HASH in deployments[name].template_annotations:
            continue
        config_map, _ = await _read(client, children, CONFIG_MAP, key, found)
        if config_map is not None and belongs_to(config_map, stack):
            config_maps[name] = LiveConfigMap.of(config_map)
    found.facts = Facts(served=children.served, deployments=deployments, config_maps=config_maps)
    return found


async def _read(
    client: Client, children: Children, gvk: GVK, key: NamespacedName, found: Observation
) -> tuple[Object | None, Iterable[Mapping[str, Any]]]:
    """Return an object, and its managedFields; from an informer, only those of our own field managers."""
    entry = children.entry(gvk, key)
    if entry is not None:
        return entry.object(), entry.managers
    obj = await client.get(gvk, key, live=True)
    if obj is None:
        return None, ()
    found.uncached[gvk, key] = obj
    return obj, _managers_of(obj)


async def _is_autoscaled(
    client: Client, key: NamespacedName, deployment: Object, managers: Iterable[Mapping[str, Any]]
) -> bool:
    """Return whether an autoscaler that does not belong to the stack set the number of replicas, if it is not known.

    It is known if our field manager owns the number, or if a label says who sets it.
    """
    if owns_replicas(managers) or not labels_of(deployment).keys().isdisjoint((AUTOSCALED, SCALED_BY_OTHERS)):
        return False
    if "managedFields" not in deployment["metadata"]:
        deployment = await client.get(DEPLOYMENT, key, live=True) or deployment
    return is_autoscaled(_managers_of(deployment))


def _managers_of(obj: Object) -> Iterable[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = obj["metadata"].get("managedFields") or ()
    return found
