"""Recordings of the Go operator's AppWrappers: their admission responses, settings, steps and CRDs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from cfo.api.appwrapper.names import ANNOTATION_PREFIX
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.runtime.objects import format_duration, parse_duration
from cfo.runtime.objects.unstructured import Object, annotations_of
from cfo.runtime.webhook.admission import UserInfo
from test.support.recordings import load_crd

NO_POD_SPECS = "spec.components: Invalid value: components contains no podspecs"
UNKNOWN_KIND = 'Invalid value: "Thing": no matches for kind "Thing" in version "example.com/v1"'

DIFFERENCES = {
    ("admission-bad-templates", "b1"): (
        "spec.components[0].template: Invalid value: error inferring PodSets: "
        "template does not refer to a v1.PodSpecTemplate: "
        "content at template.spec not parseable as a v1.PodSpec: "
        'strict decoding error: unknown field "containers[0].imaeg"; did you mean image?'
    ),
    ("admission-bad-templates", "b2"): (
        "spec.components[0].template: Invalid value: error inferring PodSets: "
        "at path position 'template.spec.parallelism' non-int value three"
    ),
    ("admission-nested-other-version", "n3"): (
        "spec.components[0].template: Forbidden: Nested AppWrappers are forbidden"
    ),
    ("admission-no-podspecs", "z1"): (
        f"{NO_POD_SPECS}: no pod template of Service s is known; set podSets of the component to the path of its pod "
        "template, or, if it has none, create it without an AppWrapper"
    ),
    ("admission-podset-paths", "path0"): f"spec.components[0].template.kind: {UNKNOWN_KIND}",
    ("admission-podset-paths", "path1"): f"spec.components[0].template.kind: {UNKNOWN_KIND}",
    ("create-unknown-kind", "c"): f"spec.components[1].template.kind: {UNKNOWN_KIND}",
    ("name-of-64", "a" * 64): "metadata.name: Too long: may not be more than 63 bytes",
}
"""The expected denial by scenario and name of the AppWrapper, if it deliberately differs from the recording: the Go
operator admitted the AppWrapper, or denied it with a shorter message. docs/differences.md lists each scenario."""

WEBHOOK = 'admission webhook "vappwrapper.kb.io" denied the request: '
_PRINTED_VALUE = re.compile(r"(spec\.components(?:\[\d+\]\.template)?: Invalid value: )(?=[\[{])")


def recorded_denial(message: str) -> str:
    """Return the message of the Go webhook's denial without the templates that it printed, and with causes only.

    A component that is invalid has no pod specs, which the Go webhook reports as a second error.
    """
    string = message.removeprefix(WEBHOOK)
    decoder, position = json.JSONDecoder(), 0
    while found := _PRINTED_VALUE.search(string, position):
        position = found.end()
        _, end = decoder.raw_decode(string, position)
        string = string[:position] + string[end:].removeprefix(": ")
    consequence = f", {NO_POD_SPECS}]"
    if not string.endswith(consequence):
        return string
    causes = string.removesuffix(consequence).removeprefix("[")
    return causes if causes.count("spec.components[") == 1 else f"[{causes}]"


def user_of(action: dict[str, Any]) -> UserInfo:
    """Return the user of a recorded request: the recorder as admin, ``alice``, or an impersonated user."""
    user: Any = action.get("user") or "admin"
    if user == "alice":
        return UserInfo("alice", "alice-uid", ("system:authenticated",))
    if user == "admin":
        return UserInfo("admin", "admin", ("system:masters",))
    return UserInfo(user["user"], user.get("uid", ""), (user["group"],))


def settings_of(recording: dict[str, Any]) -> AppWrapperConfiguration:
    """Return the configuration as the Go operator read it: only the settings under ``Config``."""
    return AppWrapperConfiguration.from_document(
        recording["config"]["appwrapper"].get("Config") or {}
    )


def actions(
    recording: dict[str, Any], op: str, kind: str = "AppWrapper"
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the recorded actions ``op`` on objects of ``kind``, each with its result."""
    for step in recording["steps"]:
        action = step.get("do") or {}
        if action.get("op") == op and (action.get("object") or action)["kind"] == kind:
            yield action, step["result"]


CRD_FILES = ("minimal_jobsets", "minimal_pytorchjobs", "ray.io_rayclusters", "ray.io_rayjobs")

PERIOD_FACTOR = 0.2 if os.environ.get("KUBEBUILDER_ASSETS") else 5.0
"""The factor of recorded periods: short where a test waits for them, longer than any delay where it steps the clock."""


def change_period(string: str) -> str:
    """Multiply a recorded period of at most 60 seconds by :data:`PERIOD_FACTOR`; return other strings unchanged."""
    try:
        period = parse_duration(string)
    except ValueError:
        return string
    seconds = period.total_seconds()
    return format_duration(period * PERIOD_FACTOR) if 0 < seconds <= 60 else string


def recreatable(obj: Object) -> Object:
    """Return a recorded object without the fields that the server sets, and with other periods."""
    server_fields = {"uid", "creationTimestamp", "generation", "managedFields", "resourceVersion"}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in server_fields}
    if annotations := annotations_of(obj):
        metadata["annotations"] = {
            key: change_period(value) if key.startswith(ANNOTATION_PREFIX) else value
            for key, value in annotations.items()
        }
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def recorded_crds() -> list[Object]:
    """Return the CRDs of the components that the recordings use; tests share them and must not modify them."""
    return [load_crd(name) for name in CRD_FILES]
