"""Replays of recorded RayCluster admissions through the webhooks' pure functions."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch

from cfo.api.raycluster.names import head_service_name
from cfo.runtime.objects.field import FieldErrors
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from cfo.webhooks.raycluster.validation import create_errors, update_errors

CA_KEY = "/home/ray/workspace/ca-key"
DENIED = 'admission webhook "vraycluster.ray.openshift.ai" denied the request: '


def settings_of(recording: dict[str, Any]) -> InjectionSettings:
    """Return the webhooks' settings for the configuration of a recording."""
    config = recording["config"]
    return InjectionSettings(
        version="UNKNOWN",
        oauth=config["kuberay"]["rayDashboardOAuthEnabled"] and config["openshift"],
        mtls=config["kuberay"]["mTLSEnabled"],
        ingress_domain=config["kuberay"]["ingressDomain"],
    )


def has_oauth_on_vanilla(recording: dict[str, Any]) -> bool:
    """Report whether OAuth was enabled outside OpenShift, where only the Go operator injects the proxy."""
    return (
        recording["config"]["kuberay"]["rayDashboardOAuthEnabled"]
        and not recording["config"]["openshift"]
    )


def with_crd_defaults(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object as the API server persists it without webhooks: with the defaults of the CRD.

    Status and the metadata that the API server sets are removed.
    """
    result = copy.deepcopy(obj)
    for field in (
        "creationTimestamp",
        "generation",
        "managedFields",
        "uid",
        "finalizers",
        "resourceVersion",
    ):
        result["metadata"].pop(field, None)
    result.pop("status", None)
    for group in groups(result):
        if group is not result["spec"]["headGroupSpec"]:
            for field, value in (("numOfHosts", 1), ("priority", 0)):
                group.setdefault(field, value)
        pod = group["template"].get("spec") or {}
        for container in (pod.get("containers") or []) + (pod.get("initContainers") or []):
            for port in container.get("ports") or []:
                port.setdefault("protocol", "TCP")
    return result


def without_empty_go_fields(obj: dict[str, Any]) -> dict[str, Any]:
    """Remove fields that only Go's encoder writes: empty ``resources``, ``metadata`` and ``scaleStrategy``."""
    result = with_crd_defaults(obj)
    for group in groups(result):
        drop_empty(group, "scaleStrategy")
        drop_empty(group["template"], "metadata")
        pod = group["template"].get("spec") or {}
        for container in (pod.get("containers") or []) + (pod.get("initContainers") or []):
            drop_empty(container, "resources")
    return result


def drop_empty(parent: dict[str, Any], field: str) -> None:
    """Delete a field whose value is an empty object."""
    if parent.get(field) == {}:
        del parent[field]


def without_proxy(obj: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """Remove the OAuth proxy from a recorded object; ``user`` is the object as the user submitted it."""
    pod = obj["spec"]["headGroupSpec"]["template"]["spec"]
    user_pod = user["spec"]["headGroupSpec"]["template"]["spec"]
    user_containers = {item["name"]: item for item in user_pod["containers"]}
    pod["containers"] = [
        user_containers.get("oauth-proxy", item) if item["name"] == "oauth-proxy" else item
        for item in pod["containers"]
        if item["name"] != "oauth-proxy" or "oauth-proxy" in user_containers
    ]
    pod["volumes"] = [item for item in pod["volumes"] if item["name"] != "proxy-tls-secret"]
    if not pod["volumes"] and "volumes" not in user_pod:
        del pod["volumes"]
    pod.pop("serviceAccountName")
    if "serviceAccountName" in user_pod:
        pod["serviceAccountName"] = user_pod["serviceAccountName"]
    return obj


def groups(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the head group and the worker groups."""
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"].get("workerGroupSpecs", ())]


def apply_patch(obj: dict[str, Any], action: dict[str, Any]) -> dict[str, Any]:
    """Apply a recorded JSON patch or merge patch."""
    if action.get("type") == "application/json-patch+json":
        patched: dict[str, Any] = jsonpatch.apply_patch(obj, action["patch"])
    else:
        patched = merge(obj, action["patch"])
    return patched


def merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        result[key] = merge(result.get(key), value)
        if value is None:
            del result[key]
    return result


def with_real_head_service(obj: dict[str, Any]) -> dict[str, Any]:
    """Replace the name of the head's Service, which the Go operator only assumes, by the name that KubeRay uses."""
    for item in obj["spec"]["headGroupSpec"]["template"]["spec"].get("initContainers") or []:
        assumed = f"{obj['metadata']['name']}-head-svc."
        item["command"] = [
            word.replace(f" = {assumed}", f" = {head_service_name(obj)}.")
            for word in item["command"]
        ]
    return obj


def with_restricted_access(obj: dict[str, Any], settings: InjectionSettings) -> dict[str, Any]:
    """Convert the recorded entries: only the init container mounts the CA's key, and the proxy checks all users."""
    for group in groups(obj):
        pod = group["template"].get("spec") or {}
        for item in pod.get("containers") or []:
            access = [
                arg.partition("=")[2]
                for arg in item.get("args") or []
                if "--openshift-delegate-urls=" in arg
            ]
            if item["name"] == "oauth-proxy" and access:
                (attributes,) = json.loads(access[0]).values()
                item["args"].append(
                    f"--openshift-sar={json.dumps(attributes, separators=(',', ':'))}"
                )
        if not settings.mtls:
            continue
        for item in pod.get("initContainers") or []:
            if item["name"] == "create-cert":
                item["command"] = [
                    word.replace("ca/* .", "ca/ca.crt .").replace(
                        "-CAkey ca.key", f"-CAkey {CA_KEY}/ca.key"
                    )
                    for word in item["command"]
                ]
                item["volumeMounts"].append(
                    {"name": "ca-key-vol", "mountPath": CA_KEY, "readOnly": True}
                )
        for volume in list(pod.get("volumes") or []):
            if volume["name"] == "ca-vol":
                name = volume["secret"]["secretName"]
                volume["secret"]["items"] = [{"key": "ca.crt", "path": "ca.crt"}]
                secret = {"secretName": name, "items": [{"key": "ca.key", "path": "ca.key"}]}
                pod["volumes"].append({"name": "ca-key-vol", "secret": secret})
    return obj


# docs/differences.md describes these differences under "Admission".

DIFFERENT_HEAD_SERVICE = {"name-of-63", "name-with-dots"}
"""Recordings in which the Go operator assumes a name of the head's Service that KubeRay does not use."""

DENIED_BY_CFO = {
    "head-without-containers": "spec.headGroupSpec.template.spec.containers: Required value"
}
"""Recordings of RayClusters that only this operator denies, with the start of its message."""

UNCHANGED_BY_CFO = {"old-names-unannotated"}
"""Recordings of updates after which this operator injects nothing and the Go operator does."""


class AdmissionReplay:
    """The replay of one recording, step by step, each step on the state that this operator left.

    :attr:`state` is the RayCluster as persisted here, :attr:`user` as its user submitted it; :attr:`compared` counts
    the compared responses.
    """

    def __init__(self, recording: dict[str, Any]) -> None:
        self.recording = recording
        self.settings = settings_of(recording)
        self.state: dict[str, Any] = {}
        self.user: dict[str, Any] = {}
        self.compared = 0
        self.skips_webhooks = "golden/no-webhook" in (recording.get("namespaceLabels") or {})

    def run(self) -> None:
        """Replay all steps and compare each response with the recorded one."""
        for step in self.recording["steps"]:
            if "note" in step:
                self.skips_webhooks = False
            action = step.get("do")
            if not action or "RayCluster" not in (
                action.get("kind"),
                (action.get("object") or {}).get("kind"),
            ):
                continue
            result = step.get("result") or action["result"]
            if action["op"] == "create":
                self.user = with_crd_defaults(action["object"])
                self.admit(self.user, None, result)
            elif action["op"] == "patch":
                try:
                    patched = apply_patch(self.state, action)
                except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
                    assert has_oauth_on_vanilla(self.recording), (
                        "only patches of the proxy, absent here, may fail"
                    )
                    continue
                self.admit(with_crd_defaults(patched), self.state, result)

    def admit(
        self, obj: dict[str, Any], old: dict[str, Any] | None, result: dict[str, Any]
    ) -> None:
        """Default and validate a RayCluster; compare with the recorded ``result``."""
        if self.skips_webhooks:
            self.state = obj
            return
        cluster = default(obj, old, self.settings).cluster
        second = default(cluster, old, self.settings)
        assert second.cluster == cluster
        assert [
            warning for warning in second.warnings if not warning.startswith("metadata.name: ")
        ] == []
        errors = (
            create_errors(cluster, self.settings)
            if old is None
            else update_errors(old, cluster, self.settings)
        )
        self.compared += 1
        name = self.recording["name"]
        if name in DENIED_BY_CFO:
            assert str(errors[0]).startswith(DENIED_BY_CFO[name])
            return
        if result["code"] >= 400:
            assert (result["code"], result["reason"]) == (403, "Forbidden")
            assert DENIED + str(FieldErrors(errors)) == result["message"]
            return
        assert errors == []
        self.state = cluster
        if "object" in result:
            assert cluster == self.expected(result["object"], old)

    def expected(self, recorded: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
        """Return the object that this operator must persist if the Go operator persisted ``recorded``."""
        if self.recording["name"] in UNCHANGED_BY_CFO:
            assert old is not None
            labels = recorded["metadata"]["labels"]
            return {**old, "metadata": {**old["metadata"], "labels": labels}}
        expected = with_restricted_access(without_empty_go_fields(recorded), self.settings)
        if self.recording["name"] in DIFFERENT_HEAD_SERVICE:
            expected = with_real_head_service(expected)
        return (
            without_proxy(expected, self.user) if has_oauth_on_vanilla(self.recording) else expected
        )
