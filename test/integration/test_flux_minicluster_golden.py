"""Tests that compare the objects of MiniClusters with the recorded ones of the Go operator.

All scenarios of a run are created at once, each in a namespace. :data:`DIFFERENCES` lists where the Go operator is not
followed, as docs/differences-flux.md explains; :func:`translate` removes what differs everywhere.
"""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from cfo.api.flux.names import MINICLUSTER, MINICLUSTER_LABEL
from cfo.controllers.flux.minicluster.plan import secret_name
from cfo.runtime.objects.kinds import CONFIG_MAP, JOB, POD, SERVICE
from cfo.runtime.objects.unstructured import Object, key_of, name_of, namespace_of, uid_of
from test.support.flux_environment import (
    FluxEnvironment,
    run_minicluster_controller,
    start_flux_environment,
    state,
)
from test.support.raycluster_environment import eventually
from test.support.recordings import flux_cases, load_flux
from test.support.sweeps import sampled

CASES = [case for case in flux_cases("*", "features/*") if case != "requests"]

NOT_READY = {"features/host-pid-and-shared-processes", "features/pod-options"}
"""Scenarios in which the API server refuses the Job, or in which it waits for Kueue."""

DIFFERENCES: dict[str, set[str]] = {
    # The Go operator's Job is refused, because it has a volume without a source.
    "tests-batch": {"Job", "Pod", "MiniCluster"},
    "features/volumes-path-only": {"Job", "Pod", "MiniCluster"},
    "machine-learning-pytorch": {"Job", "Pod", "MiniCluster"},
    # The Go operator writes no status if the API server refuses the Job.
    "features/host-pid-and-shared-processes": {"MiniCluster"},
    # The Go operator's Job is refused, because a volume is mounted by another name.
    "features/volumes-config-map-other-name": {"Job", "Pod", "MiniCluster"},
    # The Go operator creates a Service for the container that runs Flux, named like an ignored name, or refused.
    "features/container-options": {"Service"},
    "features/runner-with-two-ports": {"Service", "Pod", "MiniCluster"},
    # The Go operator's Service is refused, because its ports have no names.
    "features/sidecar-with-two-ports": {"Service", "Pod", "MiniCluster"},
    # The Go operator leaves it to Kueue's webhook to suspend the Job, which runs without Kueue.
    "features/pod-options": {"Job", "Pod", "MiniCluster"},
    # The Go operator mounts the volumes of a container in all following ones.
    "features/services-pod": {"Pod"},
}


def mini_cluster_of(recording: dict[str, Any]) -> Object:
    """Return the first MiniCluster that the scenario creates."""
    for step in recording["steps"]:
        obj = step.get("do", {}).get("object") or {}
        if obj.get("kind") == "MiniCluster":
            return copy.deepcopy(obj)
    raise AssertionError(f"{recording['name']} creates no MiniCluster")


def recorded_objects(recording: dict[str, Any]) -> dict[tuple[str, str], Object]:
    """Return the objects of the first observation; pods of the Job by their index."""
    for step in recording["steps"]:
        if step.get("objects"):
            return {
                identity(obj): normalize(copy.deepcopy(obj))
                for obj in step["objects"]
                if is_compared(obj)
            }
    return {}


def is_compared(obj: Object) -> bool:
    """Report whether the object is of a kind that the operator writes."""
    return obj.get("kind") in {"ConfigMap", "Service", "Job", "Pod", "MiniCluster"}


def identity(obj: Object) -> tuple[str, str]:
    """Return kind and name; for a Job's pod, the index instead of the name's random part."""
    labels = (obj.get("metadata") or {}).get("labels") or {}
    index = labels.get("batch.kubernetes.io/job-completion-index")
    name = name_of(obj)
    return obj["kind"], name if index is None else name.rpartition("-")[0]


def normalize(obj: Object) -> Object:
    """Return the part of an object that is compared."""
    metadata, kind = obj["metadata"], obj["kind"]
    found: Object = {
        "labels": metadata.get("labels") or {},
        "owners": metadata.get("ownerReferences"),
    }
    if kind == "ConfigMap":
        return {"owners": found["owners"], "keys": sorted(set(obj["data"]) - {"curve.cert"})}
    if kind == "MiniCluster":
        return {
            "spec": obj["spec"],
            "state": state(obj),
            "maximumSize": (obj.get("status") or {}).get("maximumSize"),
        }
    if kind == "Service":
        return {"owners": found["owners"], "spec": obj["spec"]}
    if kind == "Pod" and identity(obj)[1] != name_of(obj):
        return {
            "labels": found["labels"],
            "spec": {key: obj["spec"][key] for key in ("hostname", "subdomain")},
        }
    spec = obj["spec"]
    for pod_spec in (spec, (spec.get("template") or {}).get("spec") or {}):
        sort_lists(pod_spec)
    return {**found, "spec": spec}


def sort_lists(pod_spec: Object) -> None:
    """Sort the lists whose order is random in the Go operator."""
    for container in [*pod_spec.get("containers", ()), *pod_spec.get("initContainers", ())]:
        container.get("volumeMounts", []).sort(key=lambda item: item["mountPath"])
        container.get("env", []).sort(key=lambda item: item["name"])
    pod_spec.get("volumes", []).sort(key=lambda item: item["name"])


def translate(obj: Object, uids: dict[str, str]) -> Object:
    """Return ``obj`` as the Go operator would have created it, apart from scenarios in :data:`DIFFERENCES`."""

    def replace_uids(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: replace_uids(item) for key, item in value.items() if key != MINICLUSTER_LABEL
            }
        if isinstance(value, list):
            return [replace_uids(item) for item in value]
        return uids.get(value, value) if isinstance(value, str) else value

    obj = replace_uids(obj)
    spec = obj.get("spec") or {}
    if obj["kind"] == "Service":
        spec.pop("publishNotReadyAddresses", None)
        if spec.get("clusterIP") != "None":
            spec |= {"clusterIP": "IP", "clusterIPs": ["IP"]}
    if obj["kind"] == "Job":
        assert spec.pop("successPolicy") == {"rules": [{"succeededIndexes": "0"}]}
        obj["metadata"]["labels"].pop(MINICLUSTER_LABEL, None)
        for volume in spec["template"]["spec"]["volumes"]:
            if "projected" in volume:
                volume["configMap"] = unprojected(volume.pop("projected"), name_of(obj))
    return obj


def unprojected(projected: Object, name: str) -> Object:
    """Return a projection of a ConfigMap and the certificate's Secret as the Go operator's ConfigMap."""
    config_map, secret = (next(iter(source.values())) for source in projected["sources"])
    assert secret["name"] == secret_name(name)
    items = sorted([*config_map["items"], *secret["items"]], key=lambda item: item["key"])
    return {"name": config_map["name"], "items": items, "defaultMode": projected["defaultMode"]}


async def objects_by_namespace(env: FluxEnvironment) -> dict[str, list[Object]]:
    """Return all objects that are compared."""
    found = defaultdict(list)
    for gvk in (CONFIG_MAP, SERVICE, JOB, POD, MINICLUSTER):
        for obj in await env.client.list(gvk):
            found[namespace_of(obj)].append(obj)
    return found


def created_objects(found: list[Object], namespace: str) -> dict[tuple[str, str], Object]:
    """Return the objects of a namespace, comparable to :func:`recorded_objects`."""
    uids = {uid_of(obj): f"UID:{obj['kind']}/{name_of(obj)}" for obj in found}
    uids[namespace] = "NAMESPACE"
    return {identity(obj): normalize(translate(obj, uids)) for obj in found}


def differences(recorded: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each difference."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for key in sorted({*recorded, *actual}, key=str):
            yield from differences(recorded.get(key), actual.get(key), f"{path}/{key}")
    elif recorded != actual:
        yield f"{path}: recorded {recorded!r}, is {actual!r}"


@pytest.mark.skipif(not CASES, reason="no recordings")
@pytest.mark.sweep
async def test_objects_equal_the_recorded_ones() -> None:
    recordings = {case: load_flux(case) for case in sampled(CASES)}
    ready = len(recordings) - len(NOT_READY & recordings.keys())
    async with start_flux_environment(controllers=("job",)) as env, run_minicluster_controller(env):
        namespaces = {case: case.replace("/", "-") for case in recordings}

        async def create(case: str) -> None:
            await env.create_namespace(namespaces[case])
            cluster = mini_cluster_of(recordings[case])
            cluster["metadata"]["namespace"] = namespaces[case]
            await env.create(cluster)

        await asyncio.gather(*map(create, recordings))
        await wait_for_states(env, ["JobMiniClusterReady"], ready)
        await env.wait_until_idle()
        created = await objects_by_namespace(env)
        found = {}
        for case, recording in recordings.items():
            namespace = namespaces[case]
            recorded, actual = (
                recorded_objects(recording),
                created_objects(created[namespace], namespace),
            )
            expected = DIFFERENCES.get(case, set())
            lines = [
                line
                for key in sorted({*recorded, *actual})
                if key[0] not in expected
                for line in differences(recorded.get(key), actual.get(key), "/".join(key))
            ]
            if lines:
                found[case] = lines
        assert not found, "\n".join(
            f"{case}: {line}" for case, lines in found.items() for line in lines
        )
        for pod in created_pods_of_lead_brokers(created):
            await env.client.patch(
                POD, key_of(pod), {"status": {"phase": "Succeeded"}}, subresource="status"
            )
        cleaned_up = [
            case for case in recordings if mini_cluster_of(recordings[case])["spec"].get("cleanup")
        ]
        await wait_for_states(env, ["JobFinished"], ready - len(cleaned_up))
        for case in cleaned_up:
            await env.wait_until_removed(MINICLUSTER, "flux-sample", namespaces[case])


def created_pods_of_lead_brokers(created: dict[str, list[Object]]) -> list[Object]:
    """Return the pods with index 0."""
    pods = [obj for objects in created.values() for obj in objects if obj["kind"] == "Pod"]
    return [pod for pod in pods if (pod["metadata"].get("labels") or {}).get("job-index") == "0"]


async def wait_for_states(env: FluxEnvironment, states: list[str], count: int) -> None:
    """Wait until so many MiniClusters have these states."""

    async def have_states() -> bool:
        clusters = await env.client.list(MINICLUSTER)
        found = [name for name in clusters if state(name) == states]
        assert len(found) == count, f"{len(found)} of {count}"
        return True

    await eventually(have_states, f"{states}")
