"""The recorded scenarios of the Go operator, played to this one.

Admission webhooks come from elsewhere: an object is fed in as the Go operator's webhooks persisted it, and what they
refused is left out. Where this operator differs on purpose, :data:`DIFFERENCES` says how, and docs/differences.md why.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cfo.api.raycluster.kinds import DSC_INITIALIZATION, RAY_CLUSTER
from cfo.api.raycluster.naming import FIELD_MANAGER, names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.oauth import FINALIZER
from cfo.runtime.kinds import POD
from cfo.runtime.objects import GVK, NamespacedName, Object, annotations_of, is_deleting, labels_of, name_of
from test.support.network_policies import allowed_namespaces_in
from test.support.raycluster_environment import Environment, eventually, run_controllers, start_environment
from test.support.raycluster_recordings import (
    CONFIGURATIONS,
    comparable_part,
    managed_fields,
    recorded_crds,
    without_server_fields,
)
from test.support.recordings import RAYCLUSTER_RECORDINGS, load_raycluster

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
    "name-of-63": "the whole set is made, with a shorter name for the Service",
    "name-with-dots": "the whole set is made, with another name for the Service",
    "old-names-unannotated": "the cluster keeps its old names: the edit that annotates it is the webhook's",
    "preexisting-objects": "a Secret and a NetworkPolicy of somebody else are left as they are",
    "kuberay-namespace-a": "a pod that calls itself KubeRay's operator moves no policy",
    "restart-a": "nothing changes over a restart",
}
_MISSING = pytest.mark.skipif(not RAYCLUSTER_RECORDINGS.is_dir(), reason="no recordings beside the repository")


class Scenario:
    """One recording, being played."""

    def __init__(self, here: Environment, recording: dict[str, Any]) -> None:
        self.here = here
        self.recording = recording
        self.namespace: str = recording["namespace"]
        self.openshift: bool = recording["config"]["openshift"]

    async def play(self) -> str:
        """Plays all steps; returns why it was not played, or nothing. Raises AssertionError where it ends otherwise."""
        await self.here.create_namespace(self.namespace)
        for step in self.recording["steps"]:
            if "do" in step:
                if step["result"]["code"] >= 400 if "result" in step else step["do"]["result"]["code"] >= 400:
                    if step["do"]["op"] == "create":
                        return "refused at admission"
                    continue
                await self.do(step["do"], step.get("result") or step["do"]["result"])
            elif "observe" in step:
                await self.here.wait_until_idle()
                await self.observe(step)
        return ""

    async def do(self, do: dict[str, Any], result: dict[str, Any]) -> None:
        client = self.here.client
        if do["op"] == "create":
            obj = do["object"]
            if obj["kind"] == "RayCluster" and "object" in result:
                obj = without_server_fields(result["object"])
            if obj["metadata"].get("namespace") not in (None, self.namespace):
                await self.here.create_namespace(obj["metadata"]["namespace"])
            await client.create(obj)
            await self.here.wait_until_idle()
            return
        gvk, key = GVKS[do["kind"]], NamespacedName(self.namespace, do["objectName"])
        if gvk == DSC_INITIALIZATION:
            key = NamespacedName("", do["objectName"])
        if do["op"] == "delete":
            await client.delete(gvk, key)
        elif gvk == RAY_CLUSTER and "object" in result and "old-names" not in self.recording["name"]:
            now = await self.here.get(gvk, key.name, self.namespace)
            persisted = without_server_fields(result["object"])
            for part in ("annotations", "labels"):
                now["metadata"][part] = persisted["metadata"].get(part)
            await client.update({**now, "spec": persisted["spec"]})
        elif do.get("type") in (None, "merge"):
            await client.patch(gvk, key, do["patch"])

    async def observe(self, step: dict[str, Any]) -> None:
        if "kuberayOperatorNamespaces" in step:
            await self.compare_operators(step)
        elif "pods" in step:
            await self.compare_pods(step["pods"])
        elif "objects" in step and "over a restart" not in step["observe"]:
            if step["observe"] == "after delete":
                await self.compare_nothing(step["objects"])
            else:
                await self.compare(step["observe"], step["objects"])

    async def compare_operators(self, step: dict[str, Any]) -> None:
        """As recorded at first; then no pod counts, and a DSCInitialization does at once."""
        policy = names_of(await self.here.get(RAY_CLUSTER, "npa", self.namespace)).head_policy
        found = allowed_namespaces_in(await self.here.get(GVKS["NetworkPolicy"], policy, self.namespace))
        settings = None
        if self.openshift:
            settings = await self.here.client.get(DSC_INITIALIZATION, NamespacedName("", "default-dsci"))
        (recorded,) = self.recording["steps"][1]["kuberayOperatorNamespaces"]
        assert found == ([settings["spec"]["applicationsNamespace"]] if settings else recorded), step["observe"]

    async def compare_pods(self, pods: list[dict[str, Any]]) -> None:
        async def look() -> bool:
            found = await self.here.client.list(POD, namespace=self.namespace)
            return {name_of(pod) for pod in found if not is_deleting(pod)} == {pod["name"] for pod in pods}

        await eventually(look, f"pods {pods}")

    async def compare_nothing(self, recorded: list[Object]) -> None:
        collects = await self.here.collects_garbage()
        mine = {name_of(item) for item in recorded if not any("Apply" in str(f) for f in managed_fields(item))}

        async def look() -> bool:
            found = await self.here.children(self.namespace, openshift=self.openshift)
            if not collects:
                found = {key: item for key, item in found.items() if key[0] == "ClusterRoleBinding"}
            rest = {name_of(item) for item in found.values()} - mine
            assert not rest, f"still there: {sorted(rest)}"
            return True

        await eventually(look, f"nothing left in {self.namespace}")

    async def compare(self, title: str, recorded: list[Object]) -> None:
        expected = {(item["kind"], name_of(item)): item for item in recorded}
        found = await self.here.children(self.namespace, openshift=self.openshift)
        clusters = [key for key in expected if key[0] == "RayCluster"]
        for key in clusters:
            self.compare_cluster(await self.here.get(RAY_CLUSTER, key[1], self.namespace), expected.pop(key))
        check = ADJUST.get(self.recording["name"])
        if check is not None:
            expected = check(expected, found)
        assert set(found) == set(expected), f"{title}: made {sorted(found)}, recorded {sorted(expected)}"
        for key, item in expected.items():
            assert comparable_part(found[key]) == comparable_part(item), (
                f"{title}: {key}: {comparable_part(found[key])}"
            )
            compare_ownership(found[key], item)

    def compare_cluster(self, found: Object, recorded: Object) -> None:
        if not self.recording["name"].startswith("old-names"):
            assert annotations_of(found) == annotations_of(recorded)
            assert labels_of(found) == labels_of(recorded)
        active = self.openshift and self.recording["config"]["kuberay"]["rayDashboardOAuthEnabled"]
        assert found["metadata"].get("finalizers") == ([FINALIZER] if active else None)
        assert FINALIZER in recorded["metadata"]["finalizers"]


def compare_ownership(found: Object, recorded: Object) -> None:
    """Server-side applied objects own what the Go operator's own; Secrets and bindings are created."""
    assert {field["manager"] for field in managed_fields(found)} == {FIELD_MANAGER}
    if found["kind"] in ("Secret", "ClusterRoleBinding"):
        return
    (ours,), (theirs,) = (
        managed_fields(found),
        [field for field in managed_fields(recorded) if field["manager"] == FIELD_MANAGER],
    )
    assert ours["operation"] == theirs["operation"] == "Apply"
    fields = ours["fieldsV1"]
    if found["kind"] == "NetworkPolicy":
        assert fields["f:spec"].pop("f:policyTypes") == {}
    assert uidless(fields) == uidless(theirs["fieldsV1"]), name_of(found)


def uidless(fields: Any) -> Any:
    if not isinstance(fields, dict):
        return fields
    return {re.sub('"uid":"[^"]*"', '"uid":""', key): uidless(value) for key, value in fields.items()}


Objects = dict[tuple[str, str], Object]


def whole_set(expected: Objects, found: Objects) -> Objects:
    """The Go operator's half a set, and that here is a whole one."""
    kinds = {kind for kind, _ in found}
    assert {kind for kind, _ in expected} <= kinds
    assert kinds >= {"NetworkPolicy"}
    for key in expected:
        if key[0] == "Secret":
            assert comparable_part(found[key]) == comparable_part(expected[key])
    return {key: item for key, item in expected.items() if key[0] == "Secret"} | {
        key: item for key, item in found.items() if key[0] != "Secret"
    }


def old_names(expected: Objects, found: Objects) -> Objects:
    """Only what has no hash, also after the edit at which the Go operator's webhook adds the annotation."""
    old = {key: item for key, item in expected.items() if not re.search("-[0-9a-f]{8}$", key[1])}
    route = old.get(("Route", "ray-dashboard-old"))
    if route is not None:
        route = copy.deepcopy(route)
        route["spec"]["to"]["name"] = "old-oauth"
        old["Route", "ray-dashboard-old"] = route
    return old


def foreign(expected: Objects, found: Objects) -> Objects:
    """Without the Secret and the policy that somebody else had before; the service account is shared, as there."""
    theirs = {"pre-ca-secret-b5d2761f", "pre-head-5ffba10a"}
    mixed = {key for key, item in expected.items() if len(managed_fields(item)) > 1 or key[0] == "ServiceAccount"}
    for key in mixed & set(found):
        assert labels_of(found[key]) == labels_of(expected[key])
        found.pop(key)
    return {key: item for key, item in expected.items() if key[1] not in theirs and key not in mixed}


ADJUST: dict[str, Callable[[Objects, Objects], Objects]] = {
    "name-of-63": whole_set,
    "name-with-dots": whole_set,
    "old-names-unannotated": old_names,
    "preexisting-objects": foreign,
}


MOVES_ALL = "kuberay-namespace-a"
"""Played last: what it says about KubeRay's namespace would be the last word in all that follow."""


@_MISSING
@pytest.mark.timeout(300)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
async def test_the_recorded_scenarios_end_as_they_did(configuration: str) -> None:
    cases = sorted(
        (path.stem for path in (RAYCLUSTER_RECORDINGS / configuration).glob("*.yaml")),
        key=lambda case: case == MOVES_ALL,
    )
    settings = load_raycluster(f"{configuration}/{cases[0]}")["config"]
    config = KubeRayConfiguration.model_validate(settings["kuberay"])
    failed: dict[str, str] = {}
    left_out: dict[str, str] = {}
    async with (
        start_environment(*recorded_crds(openshift=settings["openshift"])) as here,
        run_controllers(here, config),
    ):
        for case in cases:
            try:
                reason = await Scenario(here, load_raycluster(f"{configuration}/{case}")).play()
            except AssertionError as error:
                failed[case] = str(error)
            else:
                if reason:
                    left_out[case] = reason
    assert not failed, "\n\n".join(f"{configuration}/{case}: {error}" for case, error in failed.items())
    assert {"enable-ingress"} <= set(left_out) <= {"enable-ingress", "head-without-containers"}


def test_each_difference_is_written_down() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    assert set(ADJUST) <= set(DIFFERENCES)
    for scenario in DIFFERENCES:
        assert f"/{scenario}`" in text, scenario
