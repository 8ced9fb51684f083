"""The recorded admissions of AppWrappers, replayed with the defaulting and validation functions."""

from __future__ import annotations

import copy
from pathlib import Path

import jsonpatch
import pytest

from cfo.api.appwrapper.inference import pod_sets_of
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.runtime.client.discovery import Resource
from cfo.runtime.objects.field import FieldError, aggregate
from cfo.runtime.objects.kinds import plural
from cfo.runtime.objects.unstructured import GVK, Object, labels_of, name_of
from cfo.runtime.webhook.admission import UserInfo
from cfo.webhooks.access import Access
from cfo.webhooks.appwrapper.validation import component_kinds, create_errors, update_errors
from cfo.webhooks.appwrapper.webhook import set_labels
from test.support.appwrapper_recordings import (
    DIFFERENCES,
    actions,
    recorded_denial,
    settings_of,
    user_of,
)
from test.support.recordings import appwrapper_cases, load_appwrapper

VERBS = frozenset({"create", "delete", "get"})


def access_of(
    appwrapper: Object, user: UserInfo, config: AppWrapperConfiguration, *, serves_things: bool
) -> dict[GVK, Access]:
    """Return the access in the recorded cluster, which serves all kinds but ``Thing``; alice may only create pods."""
    result: dict[GVK, Access] = {}
    for gvk in component_kinds(appwrapper):
        resource = Resource(gvk=gvk, plural=plural(gvk.kind), namespaced=True, verbs=VERBS)
        is_denied = (
            config.user_rbac_admission_check and user.username == "alice" and gvk.kind != "Pod"
        )
        target = f"{resource.plural} in {appwrapper['metadata']['namespace']}"
        denial = f"User alice is not authorized to create {target}" if is_denied else ""
        result[gvk] = (
            Access() if gvk.kind == "Thing" and not serves_things else Access(resource, denial)
        )
    return result


def message_of(errors: list[FieldError]) -> str:
    """Return the message of a denial with these errors."""
    return aggregate(errors) if errors else ""


@pytest.mark.parametrize("case", appwrapper_cases())
def test_recorded_creations(case: str) -> None:
    recording = load_appwrapper(case)
    config = settings_of(recording)
    serves_things = any(actions(recording, "create", "CustomResourceDefinition"))
    compared = 0
    for action, result in actions(recording, "create"):
        if result["code"] == 422:
            continue  # rejected by the API server before the webhooks
        compared += 1
        obj, user = copy.deepcopy(action["object"]), user_of(action)
        set_labels(obj, user, config.default_queue_name)
        difference = DIFFERENCES.get((recording["name"], name_of(obj)))
        # The paths were recorded with a kind that is not served; only the errors of the paths are compared.
        serves_thing = serves_things or (
            recording["name"] == "admission-podset-paths" and difference is None
        )
        access = access_of(obj, user, config, serves_things=serves_thing)
        message = message_of(create_errors(obj, recording["namespace"], access))
        assert message == (difference or recorded_denial(result.get("message") or "")), name_of(obj)
        if "object" in result:
            assert labels_of(obj) == labels_of(result["object"]), name_of(obj)
    assert compared


@pytest.mark.parametrize("case", appwrapper_cases("update-*"))
def test_recorded_updates(case: str) -> None:
    recording = load_appwrapper(case)
    ((_, created),) = actions(recording, "create")
    obj, compared = created["object"], 0
    for action, result in actions(recording, "patch"):
        updated = jsonpatch.apply_patch(obj, action["patch"])
        assert message_of(update_errors(obj, updated)) == recorded_denial(
            result.get("message") or ""
        ), action["patch"]
        obj = result.get("object", obj)
        compared += 1
    assert compared >= 10


@pytest.mark.parametrize("case", appwrapper_cases())
def test_pod_sets_equal_recorded_status(case: str) -> None:
    recording = load_appwrapper(case)
    specs = {
        name_of(action["object"]): action["object"]["spec"]
        for action, _ in actions(recording, "create")
    }
    for snapshot in recording["snapshots"]:
        name, reported = snapshot["name"], snapshot["status"].get("componentStatus")
        if reported and name in specs and (recording["name"], name) not in DIFFERENCES:
            result = [pod_sets_of(component) for component in specs[name]["components"]]
            assert result == [status.get("podSets") or [] for status in reported], name


def test_each_difference_is_documented() -> None:
    text = (Path(__file__).parents[4] / "docs" / "differences.md").read_text()
    for scenario, _ in DIFFERENCES:
        assert f"/{scenario}`" in text, scenario
