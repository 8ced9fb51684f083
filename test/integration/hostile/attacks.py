"""What hostile tenants send: objects with which a reviewer stopped an earlier version, or took others' objects.

Each tenant is a user with exactly the permissions in :data:`TENANTS`, in one namespace. What any pod can send to the
webhooks without credentials is in :mod:`.pod`.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.api.flux.names import FLUX_JOB, MINICLUSTER, MINICLUSTER_LABEL
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.names import CLUSTER_LABEL, RAY_CLUSTER, names_of
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import AlreadyExists, APIError
from cfo.runtime.objects.kinds import INGRESS, JOB, LEASE, POD, SECRET
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object, gvk_of, key_of, name_of
from test.support.composite_keys import composite_rsa_key
from test.support.raycluster_environment import ray_cluster

TENANTS: Final = {
    "wrappers": (
        Rule("workload.codeflare.dev", "appwrappers", "create"),
        Rule("", ("configmaps", "pods"), "create"),
    ),
    "clusters": (Rule("ray.io", "rayclusters", ("create", "delete")),),
    "secrets": (
        Rule("ray.io", "rayclusters", "create"),
        Rule("", "secrets", ("create", "patch", "delete")),
    ),
    "ingresses": (Rule("networking.k8s.io", "ingresses", ("create", "patch")),),
    "editor": (
        Rule("doublewordai.co", "inferencestacks", ("create", "patch")),
        Rule("flux-framework.org", ("fluxjobs", "miniclusters"), ("create", "patch")),
        Rule("ray.io", "rayclusters", ("create", "patch")),
        Rule("workload.codeflare.dev", "appwrappers", ("create", "patch")),
        Rule("coordination.k8s.io", "leases", ("create", "patch")),
        Rule(
            "",
            (
                "configmaps",
                "persistentvolumeclaims",
                "pods",
                "secrets",
                "serviceaccounts",
                "services",
            ),
            "create",
        ),
        Rule("apps", "deployments", "create"),
        Rule("batch", "jobs", "create"),
        Rule("networking.k8s.io", ("ingresses", "networkpolicies"), "create"),
    ),
}
"""The permissions of each tenant, in a namespace of this name."""

MEGABYTE: Final = 1_000_000


def many_pod_sets(count: int, variables: int) -> Object:
    """An AppWrapper with ``count`` pod sets, all with the path of the same Pod, which has many variables."""
    env = [{"name": f"E{at}", "value": "v"} for at in range(variables)]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "env": env}]},
    }
    return wrapper("many-pod-sets", {"template": pod, "podSets": [{"path": "template"}] * count})


def many_groups(count: int, variables: int = 0) -> Object:
    """A RayCluster with ``count`` worker groups."""
    env = [{"name": f"E{at}", "value": "v"} for at in range(variables)]
    template = {"spec": {"containers": [{"name": "ray", "env": env}]}}
    cluster = ray_cluster("many-groups", "clusters", version=None)
    cluster["spec"]["workerGroupSpecs"] = [
        {"groupName": f"g{at}", "template": template} for at in range(count)
    ]
    return cluster


def many_kinds() -> Object:
    """An AppWrapper with objects of many kinds, for each of which the API server is asked."""
    kinds = {
        "v1": (
            "ConfigMap",
            "Endpoints",
            "LimitRange",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
        ),
        "apps/v1": ("ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
        "batch/v1": ("CronJob", "Job"),
        "networking.k8s.io/v1": ("Ingress", "NetworkPolicy"),
        "policy/v1": ("PodDisruptionBudget",),
        "rbac.authorization.k8s.io/v1": ("Role", "RoleBinding"),
        "example.com/v1": tuple(f"Unknown{number}" for number in range(20)),
    }
    components = [
        {"template": {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}}
        for version, names in kinds.items()
        for kind in names
    ]
    return wrapper("many-kinds", *components)


def many_components(name: str) -> Object:
    """An AppWrapper with the maximum number of components, of which the last one cannot be created."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-p"}}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    names = [f"{name}-{number}" for number in range(98)]
    components = [
        {"template": {**config_map, "metadata": {"name": item}}} for item in [*names, "Not a name"]
    ]
    return wrapper(name, {"template": {**pod, "spec": spec}}, *components)


def wrapper(name: str, *components: Object, namespace: str = "wrappers") -> Object:
    """An AppWrapper with these components."""
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"components": list(components)},
    }


def labelled_secret(name: str, size: int) -> Object:
    """A Secret with the label of a RayCluster and ``size`` bytes."""
    metadata = {"name": name, "namespace": "secrets", "labels": {CLUSTER_LABEL: "any"}}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "data": {"x": b64encode(b"x" * size).decode()},
    }


def ingress(name: str, namespace: str, *hosts: str) -> Object:
    """Return an Ingress of a tenant for these hosts."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    http = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "ingressClassName": "public",
            "rules": [{"host": host, "http": http} for host in hosts],
        },
    }


DRY_RUNS: dict[str, tuple[str, Object, str]] = {
    "pod sets": (
        "wrappers",
        many_pod_sets(3000, 3000),
        "components contains 3000 podspecs; at most 8 are allowed",
    ),
    "worker groups": (
        "clusters",
        many_groups(9000),
        "spec.workerGroupSpecs: Too many: 9000: must have at most 500 items",
    ),
    "largest AppWrapper": (
        "wrappers",
        many_pod_sets(8, 3000),
        "multiple DeclaredPodSets with path 'template'",
    ),
    "largest RayCluster": ("clusters", many_groups(500, 20), ""),
}
"""For each request its tenant, its object, and a part of the denial; empty if it is allowed."""


async def create_dry_runs(clients: dict[str, Client], until: float) -> int:
    """Create large objects as dry runs; return how often."""
    count = 0
    while time.monotonic() < until:
        for tenant, obj, message in DRY_RUNS.values():
            answer = ""
            try:
                await clients[tenant].create(obj, dry_run=True)
            except APIError as error:
                answer = error.message
            if (
                "failed calling webhook" not in answer
            ):  # the limits of all reviews together, or the API server's timeout
                assert message in answer
                assert bool(message) == bool(answer)
            count += 1
        await asyncio.sleep(0.5)
    return count


async def plant_secrets(
    client: Client, until: float, *, size: int = 990_000, number: int = 10
) -> int:
    """Create large Secrets with the label of a RayCluster, and delete them; return how often."""
    count = 0
    while time.monotonic() < until:
        names = [f"large-{at}" for at in range(number)]
        for name in names:
            await client.create(labelled_secret(name, size))
            count += 1
        for name in names:
            await client.delete(SECRET, NamespacedName("secrets", name))
        await asyncio.sleep(0.5)
    return count


async def plant_keys(client: Client, until: float) -> int:
    """Replace the key of an own RayCluster's CA by one whose use takes seconds; return how often."""
    cluster = await client.create(ray_cluster("planted", "secrets", version=None))
    key = NamespacedName("secrets", names_of(cluster).ca_secret)
    data = {
        "ca.key": b64encode(composite_rsa_key(16384)).decode(),
        "ca.crt": b64encode(b"x").decode(),
    }
    count = 0
    while time.monotonic() < until:
        with suppress(APIError):  # the operator has not created the Secret yet
            await client.patch(SECRET, key, {"data": data})
            count += 1
        await asyncio.sleep(0.2)
    return count


async def take_names(client: Client, names: list[str], until: float) -> int:
    """Create and delete RayClusters whose objects have the names of others' objects; return how often."""
    count = 0
    while time.monotonic() < until:
        for name in names:
            await client.create(ray_cluster(name, "clusters", version=None))
            await asyncio.sleep(0.1)
            await client.delete(RAY_CLUSTER, NamespacedName("clusters", name))
            count += 1
    return count


async def take_hosts(client: Client, hosts: list[str], until: float) -> int:
    """Edit an old Ingress so that it has the hosts of others' Ingresses; return how often."""
    count = 0
    while time.monotonic() < until:
        for current in (hosts, ["harmless.apps.test"], [f"h{at}.apps.test" for at in range(1000)]):
            spec: Any = ingress("mine", "ingresses", *current)["spec"]
            await client.patch(INGRESS, NamespacedName("ingresses", "mine"), {"spec": spec})
            count += 1
            await asyncio.sleep(0.1)
    return count


async def switch_hosts(client: Client, until: float, *, number: int) -> int:
    """Switch Ingresses between the hosts of many RayClusters in another namespace; return how often."""
    victims = [f"ray-dashboard-victim-{at}-honest.apps.test" for at in range(1, 101)]
    halves = [victims[:50], victims[50:]]
    ingresses = [ingress(f"switched-{at}", "ingresses", *halves[0]) for at in range(number)]
    switches: list[Object] = [
        {"spec": ingress("switched", "ingresses", *half)["spec"]} for half in halves
    ]
    return await _change(client, ingresses, switches, until, pause=0.1)


async def create_failing_wrappers(client: Client, until: float) -> int:
    """Create AppWrappers with many components, whose creation is retried; return how many."""
    count = 0
    while time.monotonic() < until:
        if count < 8:
            await client.create(many_components(f"failing-{count}"))
            count += 1
        await asyncio.sleep(0.2)
    return count


async def repeat(
    request: Callable[[], Awaitable[float]], until: float, pause: float = 0.02
) -> list[float]:
    """Return the latencies in seconds that ``request`` returns, which is repeated."""
    latencies = []
    while time.monotonic() < until:
        latencies.append(await request())
        await asyncio.sleep(pause)
    return latencies


# Attacks of a tenant who may edit all kinds of a namespace, and work that the operator then does.


async def store(client: Client, *objects: Object) -> None:
    """Create the objects; a refusal is a success of the defence."""
    for obj in objects:
        try:
            await client.create(obj)
        except AlreadyExists:
            continue
        except APIError as error:
            print(f"{obj['kind']} {name_of(obj)} is refused: {error.message[:200]}")


async def _change(
    client: Client,
    objects: Sequence[Object],
    patches: Sequence[Object],
    until: float,
    *,
    pause: float = 0.2,
) -> int:
    """Create the objects, then patch all of them again and again; return how often one was written.

    ``pause`` is in seconds. The API server must have time for others, because the latency of the operator is measured,
    not its own.
    """
    await store(client, *objects)
    count = len(objects)
    while time.monotonic() < until:
        for patch in patches:
            for obj in objects:
                if time.monotonic() < until:
                    with suppress(APIError):
                        await client.patch(gvk_of(obj), key_of(obj), patch)
                        count += 1
                    await asyncio.sleep(pause)
    return count


def _annotated(text: str) -> Object:
    return {"metadata": {"annotations": {"touched": text}}}


_TOUCHES: Final = [_annotated("0"), _annotated("1")]


def editor_object(gvk: GVK, name: str, spec: Object, **metadata: Any) -> Object:
    """Return an object of the tenant ``editor``."""
    identity = {"name": name, "namespace": "editor", **metadata}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": identity, "spec": spec}


async def store_quantities(client: Client, until: float) -> int:
    """Store quantities, durations and exit codes of many characters, which take minutes without a limit."""
    digits = "1" * 60_000
    resources = {"requests": {"cpu": f"{digits}e1.5", "memory": f"{digits}x"}}
    container = {"image": "i", "command": "c", "resources": resources}
    cluster = editor_object(MINICLUSTER, "digits", {"size": 1, "containers": [container]})
    prefix = "workload.codeflare.dev.appwrapper"
    settings = {
        f"{prefix}/warmupGracePeriodDuration": f"{digits}x",
        f"{prefix}/terminalExitCodes": "x," * 90_000,
    }
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "digits"}, "spec": spec}
    slow = wrapper("digits", {"template": pod}, namespace="editor")
    slow["metadata"]["annotations"] = settings
    return await _change(client, [cluster, slow], _TOUCHES, until)


def operator_lease(number: int) -> Object:
    """Return a Lease like those of stack operators."""
    labels = {"app.kubernetes.io/part-of": "inference-stack-operator"}
    spec = {"holderIdentity": "x", "leaseDurationSeconds": 15}
    return editor_object(LEASE, f"inference-stack-operator-v{number}", spec, labels=labels)


def labelled_config_map(number: int, size: int = 990_000) -> Object:
    """Return a ConfigMap with the labels of the objects of stacks and MiniClusters."""
    labels = {"app.kubernetes.io/managed-by": "inference-stack-operator", MINICLUSTER_LABEL: "x"}
    metadata = {"name": f"planted-{number}", "namespace": "editor", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"x": "x" * size},
    }


async def renew_leases(client: Client, until: float) -> int:
    """Renew many of the Leases again and again."""
    return await _change(client, [operator_lease(number) for number in range(20)], _TOUCHES, until)


async def create_large_stacks(client: Client, until: float, number: int = 8) -> int:
    """Create stacks of 40 kB whose objects have 400 kB, and change them."""
    template = {"env": [{"name": f"V{at}", "value": "x" * 500} for at in range(75)]}
    spec = {"applicationTemplate": template, "applications": {f"a{at}": {} for at in range(10)}}
    labels = {"operatorVersion": "v2"}
    stacks = [
        editor_object(INFERENCE_STACKS[1], f"large-{at}", spec, labels=labels)
        for at in range(number)
    ]
    patches: list[Object] = [
        {"spec": {"applicationTemplate": {"replicaCount": count}}} for count in (1, 2)
    ]
    return await _change(client, stacks, patches, until)


def large_jobs(number: int = 6) -> list[Object]:
    """Return FluxJobs and MiniClusters with many containers, and MiniClusters with large scripts."""
    containers = [{"image": "i", "name": f"c{at}", "command": "true"} for at in range(99)]
    main = {"image": "i", "command": "true", "runFlux": True}
    many = {"size": 1, "containers": [main, *containers]}
    scripts = {"size": 1, "containers": [{**main, "command": "x" * 400_000}]}
    job = {"command": "true", "template": many, "size": 1}
    kinds = ((FLUX_JOB, "job", job), (MINICLUSTER, "many", many), (MINICLUSTER, "scripts", scripts))
    return [
        editor_object(gvk, f"{name}-{at}", spec)
        for at in range(number)
        for gvk, name, spec in kinds
    ]


async def change_large_jobs(client: Client, until: float) -> int:
    """Change FluxJobs and MiniClusters with many containers and large scripts."""
    return await _change(client, large_jobs(), _TOUCHES, until)


def suspended_jobs(number: int, size: int = 1_300_000) -> list[Object]:
    """Return large suspended Jobs with the labels of AppWrappers and MiniClusters, as the operator caches them."""
    container = {"name": "c", "image": "i", "args": ["x" * size]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {APPWRAPPER_LABEL: "x", MINICLUSTER_LABEL: "x"}
    spec = {"suspend": True, "template": template}
    return [editor_object(JOB, f"suspended-{at}", spec, labels=labels) for at in range(number)]


def many_hosts(number: int, hosts: int = 3450) -> list[Object]:
    """Return Ingresses of 58 kB, each with so many hosts, which are indexed."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    found = []
    for at in range(number):
        rules = [{"host": f"h{at}-{name}.x"} for name in range(hosts)]
        metadata = {"name": f"hosts-{at}", "namespace": "ingresses"}
        spec = {"defaultBackend": backend, "rules": rules}
        found.append(
            {
                "apiVersion": INGRESS.api_version,
                "kind": INGRESS.kind,
                "metadata": metadata,
                "spec": spec,
            }
        )
    return found


def decoy_pods(number: int) -> list[Object]:
    """Return pods with the label of an AppWrapper that does not own them."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return [
        editor_object(POD, f"decoy-{at}", spec, labels={APPWRAPPER_LABEL: "digits"})
        for at in range(number)
    ]


async def change_large_clusters(client: Client, until: float, number: int = 4) -> int:
    """Change RayClusters of 1.1 MB again and again."""
    clusters = [
        ray_cluster(f"huge-{at}", "editor", version=None, filler="x" * 1_100_000)
        for at in range(number)
    ]
    return await _change(client, clusters, _TOUCHES, until)


async def toggle_names(client: Client, until: float, number: int = 4) -> int:
    """Change the names of MiniClusters' Services again and again, so that they are created and deleted."""
    spec = {"size": 1, "containers": [{"image": "i", "command": "true"}]}
    clusters = [editor_object(MINICLUSTER, f"toggled-{at}", spec) for at in range(number)]
    patches: list[Object] = [
        {"spec": {"network": {"headlessName": name}}} for name in ("first", "second")
    ]
    return await _change(client, clusters, patches, until)
