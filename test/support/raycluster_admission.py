"""Recordings of RayCluster admission, replayed through the webhooks."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch

from cfo.api.raycluster.naming import head_service_name
from cfo.runtime.field import FieldErrors
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_settings import InjectionSettings
from cfo.webhooks.raycluster.validation import create_errors, update_errors

DENIED = 'admission webhook "vraycluster.ray.openshift.ai" denied the request: '


def settings_of(recording: dict[str, Any]) -> InjectionSettings:
    config = recording["config"]
    return InjectionSettings(
        version="UNKNOWN",
        oauth=config["kuberay"]["rayDashboardOAuthEnabled"] and config["openshift"],
        mtls=config["kuberay"]["mTLSEnabled"],
        ingress_domain=config["kuberay"]["ingressDomain"],
    )


def recorded_oauth_on_vanilla(recording: dict[str, Any]) -> bool:
    return recording["config"]["kuberay"]["rayDashboardOAuthEnabled"] and not recording["config"]["openshift"]


def stored(obj: dict[str, Any]) -> dict[str, Any]:
    """An object as the API server stores it without any webhook: with what the definition defaults."""
    made = copy.deepcopy(obj)
    for field in ("creationTimestamp", "generation", "managedFields", "uid", "finalizers", "resourceVersion"):
        made["metadata"].pop(field, None)
    made.pop("status", None)
    for group in groups(made):
        if group is not made["spec"]["headGroupSpec"]:
            for field, value in (("numOfHosts", 1), ("priority", 0)):
                group.setdefault(field, value)
        pod = group["template"].get("spec") or {}
        for container in (pod.get("containers") or []) + (pod.get("initContainers") or []):
            for port in container.get("ports") or []:
                port.setdefault("protocol", "TCP")
    return made


def without_go(obj: dict[str, Any]) -> dict[str, Any]:
    """A recorded object, less what only Go's encoder writes: empty ``resources``, ``metadata``, ``scaleStrategy``."""
    made = stored(obj)
    for group in groups(made):
        drop_empty(group, "scaleStrategy")
        drop_empty(group["template"], "metadata")
        pod = group["template"].get("spec") or {}
        for container in (pod.get("containers") or []) + (pod.get("initContainers") or []):
            drop_empty(container, "resources")
    return made


def drop_empty(owner: dict[str, Any], field: str) -> None:
    if owner.get(field) == {}:
        del owner[field]


def without_proxy(obj: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """A recorded object less the OAuth proxy, which has no business on vanilla Kubernetes."""
    pod = obj["spec"]["headGroupSpec"]["template"]["spec"]
    theirs = user["spec"]["headGroupSpec"]["template"]["spec"]
    own = {item["name"]: item for item in theirs["containers"]}
    pod["containers"] = [
        own.get("oauth-proxy", item) if item["name"] == "oauth-proxy" else item
        for item in pod["containers"]
        if item["name"] != "oauth-proxy" or "oauth-proxy" in own
    ]
    pod["volumes"] = [item for item in pod["volumes"] if item["name"] != "proxy-tls-secret"]
    if not pod["volumes"] and "volumes" not in theirs:
        del pod["volumes"]
    pod.pop("serviceAccountName")
    if "serviceAccountName" in theirs:
        pod["serviceAccountName"] = theirs["serviceAccountName"]
    return obj


def groups(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"].get("workerGroupSpecs", ())]


def patched(obj: dict[str, Any], do: dict[str, Any]) -> dict[str, Any]:
    if do.get("type") == "application/json-patch+json":
        return jsonpatch.apply_patch(obj, do["patch"])
    return merged(obj, do["patch"])


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        made[key] = merged(made.get(key), value)
        if value is None:
            del made[key]
    return made


def with_real_head_service(obj: dict[str, Any]) -> dict[str, Any]:
    """A recorded object with the name that the head's Service really has, where the Go operator assumes another."""
    for item in obj["spec"]["headGroupSpec"]["template"]["spec"].get("initContainers") or []:
        assumed = f"{obj['metadata']['name']}-head-svc."
        item["command"] = [word.replace(f" = {assumed}", f" = {head_service_name(obj)}.") for word in item["command"]]
    return obj


# what docs/differences.md says of these, under "Admission"
OTHER_HEAD_SERVICE = {"name-of-63", "name-with-dots"}


REFUSED_HERE = {"head-without-containers": "spec.headGroupSpec.template.spec.containers: Required value"}


UNTOUCHED_HERE = {"old-names-unannotated"}


class Play:
    """One recording put to the pure functions, step by step, each on what is stored here."""

    def __init__(self, recording: dict[str, Any]) -> None:
        self.recording = recording
        self.settings = settings_of(recording)
        self.state: dict[str, Any] = {}
        self.user: dict[str, Any] = {}
        self.compared = 0
        self.skips_webhooks = "golden/no-webhook" in (recording.get("namespaceLabels") or {})

    def run(self) -> None:
        for step in self.recording["steps"]:
            if "note" in step:
                self.skips_webhooks = False
            do = step.get("do")
            if not do or "RayCluster" not in (do.get("kind"), (do.get("object") or {}).get("kind")):
                continue
            result = step.get("result") or do["result"]
            if do["op"] == "create":
                self.user = stored(do["object"])
                self.play(self.user, None, result)
            elif do["op"] == "patch":
                try:
                    wanted = patched(self.state, do)
                except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
                    assert recorded_oauth_on_vanilla(self.recording), "the patch is of the proxy, which is not there"
                    continue
                self.play(stored(wanted), self.state, result)

    def play(self, obj: dict[str, Any], old: dict[str, Any] | None, result: dict[str, Any]) -> None:
        if self.skips_webhooks:
            self.state = obj
            return
        made = default(obj, old, self.settings).cluster
        again = default(made, old, self.settings)
        assert again.cluster == made
        assert [text for text in again.warnings if not text.startswith("metadata.name: ")] == []
        errors = create_errors(made, self.settings) if old is None else update_errors(old, made, self.settings)
        self.compared += 1
        name = self.recording["name"]
        if name in REFUSED_HERE:
            assert str(errors[0]).startswith(REFUSED_HERE[name])
            return
        if result["code"] >= 400:
            assert (result["code"], result["reason"]) == (403, "Forbidden")
            assert DENIED + str(FieldErrors(errors)) == result["message"]
            return
        assert errors == []
        self.state = made
        if "object" in result:
            assert made == self.expected(result["object"], old)

    def expected(self, recorded: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
        if self.recording["name"] in UNTOUCHED_HERE:
            assert old is not None
            labels = recorded["metadata"]["labels"]
            return {**old, "metadata": {**old["metadata"], "labels": labels}}
        made = without_go(recorded)
        if self.recording["name"] in OTHER_HEAD_SERVICE:
            made = with_real_head_service(made)
        return without_proxy(made, self.user) if recorded_oauth_on_vanilla(self.recording) else made
