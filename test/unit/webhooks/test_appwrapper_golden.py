"""The recorded admissions of AppWrappers, asked of the functions that judge them here.

What is different on purpose is in :data:`DIFFERENCES`, and in docs/differences.md with the same names.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from cfo.api.appwrapper import pod_sets_of
from cfo.config import AppWrapperConfiguration
from cfo.runtime.discovery import Resource
from cfo.runtime.objects import GVK, Object, labels_of, name_of
from cfo.runtime.webhook.admission import UserInfo
from cfo.runtime.webhook.field import FieldError, aggregate
from cfo.runtime.webhook.registration import plural
from cfo.webhooks.appwrapper.access import Access
from cfo.webhooks.appwrapper.defaulting import set_labels
from cfo.webhooks.appwrapper.validation import created_errors, kinds_of, updated_errors
from test.recordings import appwrapper_cases, load_appwrapper

NO_PODS = "spec.components: Invalid value: components contains no podspecs"
NESTED = "spec.components[0].template: Forbidden: Nested AppWrappers are forbidden"
NO_THING = 'Invalid value: "Thing": no matches for kind "Thing" in version "example.com/v1"'

DIFFERENCES = {
    ("admission-bad-templates", "b2"): (
        "[spec.components[0].template: Invalid value: error inferring PodSets: "
        f"at path position 'template.spec.parallelism' non-int value three, {NO_PODS}]"
    ),
    ("admission-nested-other-version", "n3"): f"[{NESTED}, {NO_PODS}]",
    ("admission-podset-paths", "path0"): f"spec.components[0].template.kind: {NO_THING}",
    ("admission-podset-paths", "path1"): f"spec.components[0].template.kind: {NO_THING}",
    ("create-unknown-kind", "c"): f"spec.components[1].template.kind: {NO_THING}",
    ("name-of-64", "a" * 64): "metadata.name: Too long: may not be more than 63 bytes",
}
"""What is answered here, where the Go operator admitted the AppWrapper or said less."""

WEBHOOK = 'admission webhook "vappwrapper.kb.io" denied the request: '
WITHOUT_VALUE = re.compile(r"(spec\.components(?:\[\d+\]\.template)?: Invalid value: )(?=[\[{])")


def recorded_denial(message: str) -> str:
    """What the Go webhook said, without the templates that it printed."""
    text = message.removeprefix(WEBHOOK)
    decoder, at = json.JSONDecoder(), 0
    while found := WITHOUT_VALUE.search(text, at):
        at = found.end()
        _, end = decoder.raw_decode(text, at)
        text = text[:at] + text[end:].removeprefix(": ")
    return text


def user_of(do: dict[str, Any]) -> UserInfo:
    """Who made the request: the recorder as admin, ``alice``, or somebody who was impersonated."""
    user = do.get("user") or "admin"
    if user == "alice":
        return UserInfo("alice", "alice-uid", ("system:authenticated",))
    if user == "admin":
        return UserInfo("admin", "admin", ("system:masters",))
    return UserInfo(user["user"], user.get("uid", ""), (user["group"],))


def access_of(appwrapper: Object, user: UserInfo, config: AppWrapperConfiguration, things: bool) -> dict[GVK, Access]:
    """What was in the recorded cluster: all the kinds but ``Thing``, and alice who may create pods alone."""
    found: dict[GVK, Access] = {}
    for gvk in kinds_of(appwrapper):
        resource = Resource(
            gvk=gvk, plural=plural(gvk.kind), namespaced=True, verbs=frozenset({"create", "delete", "get"})
        )
        denied = config.user_rbac_admission_check and user.username == "alice" and gvk.kind != "Pod"
        where = f"{resource.plural} in {appwrapper['metadata']['namespace']}"
        denial = f"User alice is not authorized to create {where}" if denied else ""
        found[gvk] = Access() if gvk.kind == "Thing" and not things else Access(resource, denial)
    return found


def settings_of(recording: dict[str, Any]) -> AppWrapperConfiguration:
    """The configuration as the Go operator understood it: it reads nothing that is not under ``Config``."""
    return AppWrapperConfiguration.model_validate(recording["config"]["appwrapper"].get("Config") or {})


def told(errors: list[FieldError]) -> str:
    return aggregate(errors) if errors else ""


@pytest.mark.parametrize("case", appwrapper_cases())
def test_what_was_created_is_judged_as_recorded(case: str) -> None:
    recording = load_appwrapper(case)
    config = settings_of(recording)
    scenario, namespace = recording["name"], recording["namespace"]
    things = any(
        step.get("do", {}).get("object", {}).get("kind") == "CustomResourceDefinition" for step in steps_of(recording)
    )
    judged = 0
    for step in steps_of(recording):
        do, result = step.get("do", {}), step.get("result", {})
        if do.get("op") != "create" or do["object"]["kind"] != "AppWrapper" or result["code"] == 422:
            continue
        judged += 1
        obj, user = copy.deepcopy(do["object"]), user_of(do)
        set_labels(obj, user, config.default_queue_name)
        difference = DIFFERENCES.get((scenario, name_of(obj)))
        # Paths were recorded with a kind that nobody serves: what is said of the paths counts.
        known = things or (scenario == "admission-podset-paths" and difference is None)
        said = told(created_errors(obj, namespace, access_of(obj, user, config, known)))
        assert said == (difference or recorded_denial(result.get("message") or "")), name_of(obj)
        if "object" in result:
            assert labels_of(obj) == labels_of(result["object"]), name_of(obj)
    assert judged


def steps_of(recording: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = recording["steps"]
    return found


@pytest.mark.parametrize("case", appwrapper_cases("update-*"))
def test_what_was_changed_is_judged_as_recorded(case: str) -> None:
    obj: Object = {}
    changes = 0
    for step in steps_of(load_appwrapper(case)):
        do, result = step.get("do", {}), step.get("result", {})
        if do.get("op") == "create":
            obj = result["object"]
        elif do.get("op") == "patch":
            changed = jsonpatch.apply_patch(obj, do["patch"])
            assert told(updated_errors(obj, changed)) == recorded_denial(result.get("message") or ""), do["patch"]
            obj = result.get("object", obj)
            changes += 1
    assert changes >= 10


@pytest.mark.parametrize("case", appwrapper_cases())
def test_pod_sets_are_those_in_the_recorded_status(case: str) -> None:
    recording = load_appwrapper(case)
    specs = {
        name_of(step["do"]["object"]): step["do"]["object"]["spec"]
        for step in steps_of(recording)
        if "do" in step and step["do"]["op"] == "create" and step["do"]["object"]["kind"] == "AppWrapper"
    }
    for snapshot in recording["snapshots"]:
        reported = snapshot["status"].get("componentStatus")
        name = snapshot["name"]
        if reported and name in specs and (recording["name"], name) not in DIFFERENCES:
            found = [pod_sets_of(component) for component in specs[name]["components"]]
            assert found == [status.get("podSets") or [] for status in reported], name


def test_each_difference_is_written_down() -> None:
    text = (Path(__file__).parents[3] / "docs" / "differences.md").read_text()
    for scenario, _ in DIFFERENCES:
        assert f"/{scenario}`" in text, scenario
