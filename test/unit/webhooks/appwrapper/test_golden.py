"""The recorded admissions of AppWrappers, asked of the functions that judge them here."""

from __future__ import annotations

import copy
from pathlib import Path

import jsonpatch
import pytest

from cfo.api.appwrapper import pod_sets_of
from cfo.config import AppWrapperConfiguration
from cfo.runtime.discovery import Resource
from cfo.runtime.field import FieldError, aggregate
from cfo.runtime.objects import GVK, Object, labels_of, name_of
from cfo.runtime.webhook.admission import UserInfo
from cfo.runtime.webhook.registration import plural
from cfo.webhooks.appwrapper.access import Access
from cfo.webhooks.appwrapper.defaulting import set_labels
from cfo.webhooks.appwrapper.validation import component_kinds, create_errors, update_errors
from test.support.appwrapper_recordings import DIFFERENCES, actions, recorded_denial, settings_of, user_of
from test.support.recordings import appwrapper_cases, load_appwrapper

VERBS = frozenset({"create", "delete", "get"})


def access_of(
    appwrapper: Object, user: UserInfo, config: AppWrapperConfiguration, *, things: bool
) -> dict[GVK, Access]:
    """What was in the recorded cluster: all the kinds but ``Thing``, and alice who may create pods alone."""
    found: dict[GVK, Access] = {}
    for gvk in component_kinds(appwrapper):
        resource = Resource(gvk=gvk, plural=plural(gvk.kind), namespaced=True, verbs=VERBS)
        denied = config.user_rbac_admission_check and user.username == "alice" and gvk.kind != "Pod"
        where = f"{resource.plural} in {appwrapper['metadata']['namespace']}"
        denial = f"User alice is not authorized to create {where}" if denied else ""
        found[gvk] = Access() if gvk.kind == "Thing" and not things else Access(resource, denial)
    return found


def told(errors: list[FieldError]) -> str:
    return aggregate(errors) if errors else ""


@pytest.mark.parametrize("case", appwrapper_cases())
def test_what_was_created_is_judged_as_recorded(case: str) -> None:
    recording = load_appwrapper(case)
    config = settings_of(recording)
    things = any(actions(recording, "create", "CustomResourceDefinition"))
    judged = 0
    for do, result in actions(recording, "create"):
        if result["code"] == 422:
            continue  # the API server's own answer
        judged += 1
        obj, user = copy.deepcopy(do["object"]), user_of(do)
        set_labels(obj, user, config.default_queue_name)
        difference = DIFFERENCES.get((recording["name"], name_of(obj)))
        # Paths were recorded with a kind that nobody serves: what is said of the paths counts.
        known = things or (recording["name"] == "admission-podset-paths" and difference is None)
        access = access_of(obj, user, config, things=known)
        said = told(create_errors(obj, recording["namespace"], access))
        assert said == (difference or recorded_denial(result.get("message") or "")), name_of(obj)
        if "object" in result:
            assert labels_of(obj) == labels_of(result["object"]), name_of(obj)
    assert judged


@pytest.mark.parametrize("case", appwrapper_cases("update-*"))
def test_what_was_changed_is_judged_as_recorded(case: str) -> None:
    recording = load_appwrapper(case)
    ((_, created),) = actions(recording, "create")
    obj, changes = created["object"], 0
    for do, result in actions(recording, "patch"):
        changed = jsonpatch.apply_patch(obj, do["patch"])
        assert told(update_errors(obj, changed)) == recorded_denial(result.get("message") or ""), do["patch"]
        obj = result.get("object", obj)
        changes += 1
    assert changes >= 10


@pytest.mark.parametrize("case", appwrapper_cases())
def test_pod_sets_are_those_in_the_recorded_status(case: str) -> None:
    recording = load_appwrapper(case)
    specs = {name_of(do["object"]): do["object"]["spec"] for do, _ in actions(recording, "create")}
    for snapshot in recording["snapshots"]:
        name, reported = snapshot["name"], snapshot["status"].get("componentStatus")
        if reported and name in specs and (recording["name"], name) not in DIFFERENCES:
            found = [pod_sets_of(component) for component in specs[name]["components"]]
            assert found == [status.get("podSets") or [] for status in reported], name


def test_each_difference_is_written_down() -> None:
    text = (Path(__file__).parents[4] / "docs" / "differences.md").read_text()
    for scenario, _ in DIFFERENCES:
        assert f"/{scenario}`" in text, scenario
