"""Replays of the Go operator's recorded scenarios with the RayCluster controllers of this one.

The webhooks do not run: an object is created as the Go operator's webhooks persisted it, and requests that they denied
are left out. Where this operator differs on purpose, :data:`DIFFERENCES` says how, and docs/differences.md why.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cfo.api.raycluster.names import (
    DSC_INITIALIZATION,
    FIELD_MANAGER,
    FINALIZER,
    RAY_CLUSTER,
    names_of,
)
from cfo.config.kuberay import KubeRayConfiguration
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    owner_reference,
)
from test.support.network_policies import allowed_namespaces_in, without_open_client_port
from test.support.raycluster_environment import (
    Environment,
    eventually,
    run_controllers,
    start_environment,
)
from test.support.raycluster_recordings import (
    TESTED_CONFIGURATIONS,
    comparable_part,
    managed_fields,
    recorded_crds,
    without_server_fields,
)
from test.support.recordings import RAYCLUSTER_RECORDINGS, load_raycluster
from test.support.sweeps import sampled

GVKS = {
    "Pod": POD,
    "DSCInitialization": DSC_INITIALIZATION,
    "RayCluster": RAY_CLUSTER,
    **{
        gvk.kind: gvk
        for gvk in (
            GVK("", "v1", "Secret"),
            GVK("", "v1", "Service"),
            GVK("", "v1", "ServiceAccount"),
            GVK("networking.k8s.io", "v1", "NetworkPolicy"),
            GVK("networking.k8s.io", "v1", "Ingress"),
            GVK("route.openshift.io", "v1", "Route"),
            GVK("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
        )
    },
}
DIFFERENCES = {
    "name-of-63": "all children are created, the Service with a shorter name",
    "name-with-dots": "all children are created, the Service with another name",
    "old-names-annotated-by-hand": "the client port of a cluster without parts for mTLS is not open to all sources",
    "old-names-unannotated": "the cluster keeps its old names; only the Go operator's webhook changes them at an edit",
    "preexisting-objects": "objects of another owner are not changed",
    "kuberay-namespace-a": "a pod with the labels of the KubeRay operator changes no policy",
    "headpod-misses-pull-secret": "only pods whose controller is the RayCluster are deleted; recorded ones have none",
    "restart-a": "a restart changes nothing",
}
_needs_recordings = pytest.mark.skipif(
    not RAYCLUSTER_RECORDINGS.is_dir(), reason="no recordings next to the repository"
)


class Scenario:
    """The replay of one recording."""

    def __init__(self, env: Environment, recording: dict[str, Any]) -> None:
        self.env = env
        self.recording = recording
        self.namespace: str = recording["namespace"]
        self.openshift: bool = recording["config"]["openshift"]

    async def run(self) -> str:
        """Replay all steps; return the reason why the scenario was skipped, or an empty string.

        Raises AssertionError if the state differs from the recorded one.
        """
        await self.env.create_namespace(self.namespace)
        for step in self.recording["steps"]:
            if "do" in step:
                action = step["do"]
                result = step.get("result") or action["result"]
                if result["code"] >= 400:
                    if action["op"] == "create":
                        return "denied at admission"
                    continue
                await self.perform(action, result)
            elif "observe" in step:
                await self.env.wait_until_idle()
                await self.compare_observation(step)
        return ""

    async def perform(self, action: dict[str, Any], result: dict[str, Any]) -> None:
        """Send a recorded request of the user, with the object that the Go operator's webhooks persisted."""
        client = self.env.client
        if action["op"] == "create":
            obj = action["object"]
            if obj["kind"] == "RayCluster" and "object" in result:
                obj = without_server_fields(result["object"])
            if obj["metadata"].get("namespace") not in (None, self.namespace):
                await self.env.create_namespace(obj["metadata"]["namespace"])
            await client.create(await self.with_owner(obj) if obj["kind"] == "Pod" else obj)
            await self.env.wait_until_idle()
            return
        gvk, key = GVKS[action["kind"]], NamespacedName(self.namespace, action["objectName"])
        if gvk == DSC_INITIALIZATION:
            key = NamespacedName("", action["objectName"])
        if action["op"] == "delete":
            await client.delete(gvk, key)
        elif (
            gvk == RAY_CLUSTER and "object" in result and "old-names" not in self.recording["name"]
        ):
            current = await self.env.get(gvk, key.name, self.namespace)
            persisted = without_server_fields(result["object"])
            for part in ("annotations", "labels"):
                current["metadata"][part] = persisted["metadata"].get(part)
            await client.update({**current, "spec": persisted["spec"]})
        elif action.get("type") in (None, "merge"):
            await client.patch(gvk, key, action["patch"])

    async def with_owner(self, pod: Object) -> Object:
        """Return a recorded pod with the controller that KubeRay sets: the RayCluster that its label names."""
        name = labels_of(pod).get("ray.io/cluster", "")
        cluster = await self.env.find(RAY_CLUSTER, name, self.namespace) if name else None
        if cluster is None:
            return pod
        return {
            **pod,
            "metadata": {**pod["metadata"], "ownerReferences": [owner_reference(cluster)]},
        }

    async def compare_observation(self, step: dict[str, Any]) -> None:
        """Compare the current state with a recorded observation."""
        if "kuberayOperatorNamespaces" in step:
            await self.compare_kuberay_namespaces(step)
        elif "pods" in step:
            await self.compare_pods(step["pods"])
        elif "objects" in step and "over a restart" not in step["observe"]:
            if step["observe"] == "after delete":
                await self.compare_deleted(step["objects"])
            else:
                await self.compare(step["observe"], step["objects"])

    async def compare_kuberay_namespaces(self, step: dict[str, Any]) -> None:
        """Compare the namespaces that the head policy allows.

        They must equal the first recorded ones. Unlike in the recording, pods never change them, and a
        DSCInitialization changes them immediately.
        """
        policy = names_of(await self.env.get(RAY_CLUSTER, "npa", self.namespace)).head_policy
        found = allowed_namespaces_in(
            await self.env.get(GVKS["NetworkPolicy"], policy, self.namespace)
        )
        settings = None
        if self.openshift:
            settings = await self.env.client.get(
                DSC_INITIALIZATION, NamespacedName("", "default-dsci")
            )
        (recorded,) = self.recording["steps"][1]["kuberayOperatorNamespaces"]
        assert found == ([settings["spec"]["applicationsNamespace"]] if settings else recorded), (
            step["observe"]
        )

    async def compare_pods(self, pods: list[dict[str, Any]]) -> None:
        """Wait until the pods that are not being deleted are the recorded ones."""

        async def same_pods() -> bool:
            found = await self.env.client.list(POD, namespace=self.namespace)
            return {name_of(pod) for pod in found if not is_deleting(pod)} == {
                pod["name"] for pod in pods
            }

        await eventually(same_pods, f"pods {pods}")

    async def compare_deleted(self, recorded: list[Object]) -> None:
        """Wait until all children are deleted, except those that the user created."""
        collects = await self.env.collects_garbage()
        of_user = {
            name_of(item)
            for item in recorded
            if not any("Apply" in str(f) for f in managed_fields(item))
        }

        async def all_deleted() -> bool:
            found = await self.env.children(self.namespace, openshift=self.openshift)
            if not collects:
                found = {key: item for key, item in found.items() if key[0] == "ClusterRoleBinding"}
            rest = {name_of(item) for item in found.values()} - of_user
            assert not rest, f"not deleted: {sorted(rest)}"
            return True

        await eventually(all_deleted, f"all children in {self.namespace} are deleted")

    async def compare(self, title: str, recorded: list[Object]) -> None:
        """Compare the RayClusters and their children with the recorded ones."""
        expected = {(item["kind"], name_of(item)): item for item in recorded}
        found = await self.env.children(self.namespace, openshift=self.openshift)
        clusters = [key for key in expected if key[0] == "RayCluster"]
        for key in clusters:
            self.compare_cluster(
                await self.env.get(RAY_CLUSTER, key[1], self.namespace), expected.pop(key)
            )
        adjust = ADJUSTMENTS.get(self.recording["name"])
        if adjust is not None:
            expected = adjust(expected, found)
        assert set(found) == set(expected), (
            f"{title}: found {sorted(found)}, recorded {sorted(expected)}"
        )
        if self.recording["name"].startswith("old-names"):  # no parts for mTLS
            expected = {
                key: without_open_client_port(item) if key[0] == "NetworkPolicy" else item
                for key, item in expected.items()
            }
        for key, item in expected.items():
            assert comparable_part(found[key]) == comparable_part(item), (
                f"{title}: {key}: {comparable_part(found[key])}"
            )
            compare_ownership(found[key], item)

    def compare_cluster(self, found: Object, recorded: Object) -> None:
        """Compare a RayCluster; this operator sets the finalizer only if OAuth needs it."""
        if not self.recording["name"].startswith("old-names"):
            assert annotations_of(found) == annotations_of(recorded)
            assert labels_of(found) == labels_of(recorded)
        active = self.openshift and self.recording["config"]["kuberay"]["rayDashboardOAuthEnabled"]
        assert found["metadata"].get("finalizers") == ([FINALIZER] if active else None)
        assert FINALIZER in recorded["metadata"]["finalizers"]


def compare_ownership(found: Object, recorded: Object) -> None:
    """Compare the fields owned by server-side apply; Secrets and bindings are created instead and not compared."""
    assert {field["manager"] for field in managed_fields(found)} == {FIELD_MANAGER}
    if found["kind"] in ("Secret", "ClusterRoleBinding"):
        return
    (own_entry,), (go_entry,) = (
        managed_fields(found),
        [field for field in managed_fields(recorded) if field["manager"] == FIELD_MANAGER],
    )
    assert own_entry["operation"] == go_entry["operation"] == "Apply"
    fields = own_entry["fieldsV1"]
    if found["kind"] == "NetworkPolicy":
        assert fields["f:spec"].pop("f:policyTypes") == {}
    assert without_uids(fields) == without_uids(go_entry["fieldsV1"]), name_of(found)


def without_uids(fields: Any) -> Any:
    """Remove the uids from the keys of ``fieldsV1``."""
    if not isinstance(fields, dict):
        return fields
    return {
        re.sub('"uid":"[^"]*"', '"uid":""', key): without_uids(value)
        for key, value in fields.items()
    }


Objects = dict[tuple[str, str], Object]


def expect_all_children(expected: Objects, found: Objects) -> Objects:
    """Expect all children if the Go operator created only some; compare the recorded Secrets."""
    kinds = {kind for kind, _ in found}
    assert {kind for kind, _ in expected} <= kinds
    assert kinds >= {"NetworkPolicy"}
    for key in expected:
        if key[0] == "Secret":
            assert comparable_part(found[key]) == comparable_part(expected[key])
    return {key: item for key, item in expected.items() if key[0] == "Secret"} | {
        key: item for key, item in found.items() if key[0] != "Secret"
    }


def expect_old_names(expected: Objects, found: Objects) -> Objects:
    """Expect only objects without a hash in their names, also after the Go operator's webhook added the annotation."""
    old = {key: item for key, item in expected.items() if not re.search("-[0-9a-f]{8}$", key[1])}
    route = old.get(("Route", "ray-dashboard-old"))
    if route is not None:
        route = copy.deepcopy(route)
        route["spec"]["to"]["name"] = "old-oauth"
        old["Route", "ray-dashboard-old"] = route
    return old


def expect_foreign_objects_kept(expected: Objects, found: Objects) -> Objects:
    """Expect the foreign Secret and policy to stay unmanaged, and the service account to keep its labels: none."""
    foreign = {"pre-ca-secret-b5d2761f", "pre-head-5ffba10a"}
    shared = {
        key
        for key, item in expected.items()
        if len(managed_fields(item)) > 1 or key[0] == "ServiceAccount"
    }
    for key in shared & set(found):
        assert labels_of(found[key]) == labels_of(expected[key])
        found.pop(key)
    return {
        key: item for key, item in expected.items() if key[1] not in foreign and key not in shared
    }


ADJUSTMENTS: dict[str, Callable[[Objects, Objects], Objects]] = {
    "name-of-63": expect_all_children,
    "name-with-dots": expect_all_children,
    "old-names-unannotated": expect_old_names,
    "preexisting-objects": expect_foreign_objects_kept,
}
"""Functions that turn recorded objects (and those found here) into the expected ones, by scenario."""


LAST_SCENARIO = "kuberay-namespace-a"
"""Replayed last: the KubeRay namespace that it sets would stay in effect in all scenarios after it."""


@_needs_recordings
@pytest.mark.sweep
@pytest.mark.parametrize("configuration", TESTED_CONFIGURATIONS)
async def test_recorded_scenarios_end_in_the_recorded_state(configuration: str) -> None:
    """Each run tries a scenario that all configurations have in at least one of them."""
    every = sorted(path.stem for path in (RAYCLUSTER_RECORDINGS / configuration).glob("*.yaml"))
    cases = sorted(
        sampled(every, TESTED_CONFIGURATIONS.index(configuration)),
        key=lambda case: case == LAST_SCENARIO,
    )
    settings = load_raycluster(f"{configuration}/{cases[0]}")["config"]
    config = KubeRayConfiguration.from_document(settings["kuberay"])
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    async with (
        start_environment(*recorded_crds(openshift=settings["openshift"])) as env,
        run_controllers(env, config),
    ):
        for case in cases:
            try:
                reason = await Scenario(env, load_raycluster(f"{configuration}/{case}")).run()
            except AssertionError as error:
                failed[case] = str(error)
            else:
                if reason:
                    skipped[case] = reason
    assert not failed, "\n\n".join(
        f"{configuration}/{case}: {error}" for case, error in failed.items()
    )
    assert {"enable-ingress"} & {*cases} <= {*skipped}
    assert {*skipped} <= {"enable-ingress", "head-without-containers"}


def test_each_difference_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    assert set(ADJUSTMENTS) <= set(DIFFERENCES)
    for scenario in DIFFERENCES:
        assert f"/{scenario}`" in text, scenario
