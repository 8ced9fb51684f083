"""The MiniCluster of a FluxJob."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.flux.validation.minicluster import validate_minicluster
from cfo.controllers.flux.fluxjob.rendering import (
    desired_minicluster,
    has_command,
    is_command_outdated,
    is_spec_outdated,
    keep_seconds,
    keeps_failure,
    priority_patch,
    size_patch,
)
from cfo.runtime.objects.unstructured import Object
from test.support.flux_environment import flux_job

SETUP: Object = {
    "spec": {
        "mini-cluster": {
            "size": 3,
            "image": "setup-image",
            "flux": {"logLevel": 7, "container": {"image": "view"}},
            "pod": {"labels": {"a": "setup", "b": "setup"}, "nodeSelector": {"zone": "one"}},
        }
    }
}


def job(**spec: Any) -> Object:
    obj = flux_job(**spec)
    obj["metadata"]["uid"] = "1"
    return obj


@pytest.mark.parametrize(
    ("template", "own", "default", "expected"),
    [
        ({}, {}, {}, 0),
        ({}, {}, {"ttlSecondsAfterFinished": 5}, 5),
        ({}, {"ttlSecondsAfterFinished": 60}, {"ttlSecondsAfterFinished": 5}, 60),
        ({}, {"ttlSecondsAfterFinished": 0}, {"ttlSecondsAfterFinished": 5}, 0),
        ({"ttlSecondsAfterFinished": 0}, {"ttlSecondsAfterFinished": 60}, {}, 0),
        ({"ttlSecondsAfterFinished": 90}, {"ttlSecondsAfterFinished": 60}, {}, 90),
    ],
)
def test_finished_minicluster_is_kept_for_the_most_specific_time(
    template: Object, own: Object, default: Object, expected: int
) -> None:
    setup = {"spec": {"mini-cluster": default}}
    assert keep_seconds(job(template=template, **own), setup) == expected


@pytest.mark.parametrize(
    ("template", "own", "default", "expected"),
    [
        ({}, {}, {}, True),
        ({}, {"ttlSecondsAfterFinished": 0}, {}, False),
        ({}, {}, {"ttlSecondsAfterFinished": 0}, False),
        ({"ttlSecondsAfterFinished": 60}, {}, {}, False),
        ({"cleanup": True}, {}, {}, False),
        ({}, {}, {"cleanup": True}, False),
        ({"cleanup": False}, {}, {}, False),
    ],
)
def test_failed_minicluster_is_kept_if_no_field_sets_its_time(
    template: Object, own: Object, default: Object, *, expected: bool
) -> None:
    setup = {"spec": {"mini-cluster": default}}
    assert keeps_failure(job(template=template, **own), setup) is expected


def render(obj: Object, setup: Object = SETUP, queue: str = "") -> Object:
    cluster = desired_minicluster(obj, setup, queue)
    assert validate_minicluster(cluster) == []
    return cluster


def test_seed_sample_becomes_a_suspended_minicluster_of_the_job() -> None:
    cluster = render(job(), {})
    assert cluster["metadata"]["name"] == "job"
    assert cluster["metadata"]["ownerReferences"][0]["controller"] is True
    assert cluster["spec"] == {
        "size": 2,
        "suspend": True,
        "flux": {"container": {"disable": True}},
        "containers": [{"image": "fluxrm/flux-sched:focal", "command": "sleep"}],
    }


def test_fields_of_the_job_replace_the_template_which_replaces_the_defaults_of_the_setup() -> None:
    template = {
        "tasks": 5,
        "cleanup": True,
        "flux": {"logLevel": 1},
        "pod": {"labels": {"a": "template"}},
        "containers": [
            {"name": "sidecar", "image": "s", "command": "serve"},
            {"runFlux": True, "image": "t", "command": "old", "environment": {"A": "1", "B": "1"}},
        ],
    }
    own = {
        "image": "own",
        "command": "new",
        "environment": {"B": "2"},
        "workingDir": "/w",
        "deadlineSeconds": 9,
    }
    spec = render(job(size=None, template=template, **own))["spec"]
    assert (spec["size"], spec["tasks"], spec["deadlineSeconds"]) == (3, 5, 9)
    assert "cleanup" not in spec
    assert spec["flux"] == {"logLevel": 1, "container": {"image": "view"}}
    assert spec["pod"] == {
        "labels": {"a": "template", "b": "setup"},
        "nodeSelector": {"zone": "one"},
    }
    sidecar, runner = spec["containers"]
    assert sidecar == {"name": "sidecar", "image": "s", "command": "serve"}
    assert runner["image"] == "own"
    assert runner["command"] == "new"
    assert runner["environment"] == {"A": "1", "B": "2"}
    assert runner["workingDir"] == "/w"


def test_view_of_the_template_is_installed_into_an_image_without_flux() -> None:
    view = {"container": {"image": "ghcr.io/converged-computing/flux-view-rocky:tag-9"}}
    assert render(job(template={"flux": view}))["spec"]["flux"]["container"] == view["container"]
    assert render(job(), {"spec": {"mini-cluster": {"flux": view}}})["spec"]["flux"] == view


def test_label_selector_of_the_operator_selects_the_minicluster_with_its_job() -> None:
    labelled = job()
    labelled["metadata"]["labels"] = {"operatorVersion": "v1"}
    assert render(labelled)["metadata"]["labels"] == {"operatorVersion": "v1"}


def test_image_of_the_setup_is_the_default() -> None:
    assert render(job(image=None))["spec"]["containers"][0]["image"] == "setup-image"
    assert (
        render(job(image=None), {})["spec"]["containers"][0]["image"] == "fluxrm/flux-sched:focal"
    )


@pytest.mark.parametrize("source", ["label", "template", "setup"])
def test_kueue_decides_when_a_job_with_its_queue_starts(source: str) -> None:
    label = {"kueue.x-k8s.io/queue-name": "lq"}
    obj = job(template={"jobLabels": label} if source == "template" else {})
    obj["metadata"]["labels"] = {
        **(label if source == "label" else {}),
        "kueue.x-k8s.io/priority-class": "high",
    }
    cluster = render(obj, queue="lq" if source == "setup" else "")
    assert cluster["spec"]["jobLabels"] == {**label, "kueue.x-k8s.io/priority-class": "high"}
    assert "suspend" not in cluster["spec"]


@pytest.mark.parametrize(
    ("label", "template", "expected"),
    [("", "", "named"), ("label", "template", "label"), ("", "template", "template")],
)
def test_kueue_gets_the_priority_class_of_a_job(label: str, template: str, expected: str) -> None:
    key = "kueue.x-k8s.io/priority-class"
    obj = job(
        priorityClassName="named", template={"jobLabels": {key: template}} if template else {}
    )
    obj["metadata"]["labels"] = {key: label} if label else {}
    assert render(obj, queue="lq")["spec"]["jobLabels"] == {
        "kueue.x-k8s.io/queue-name": "lq",
        key: expected,
    }
    assert key not in (render(job(priorityClassName="named"))["spec"].get("jobLabels") or {})


@pytest.mark.parametrize(
    ("before", "after", "is_admitted", "expected"),
    [
        ("low", "high", False, "high"),
        ("low", "high", True, "high"),
        ("", "high", False, "high"),
        ("", "high", True, None),  # Kueue refuses it
        ("low", "", False, None),  # likewise
        ("low", "low", True, None),
    ],
)
def test_kueue_gets_a_changed_priority_class(
    before: str, after: str, is_admitted: bool, expected: str | None
) -> None:
    cluster = render(job(priorityClassName=before), queue="lq")
    patch = priority_patch(job(priorityClassName=after), cluster, is_admitted=is_admitted)
    wanted = {"spec": {"jobLabels": {"kueue.x-k8s.io/priority-class": expected}}}
    assert patch == (wanted if expected else None)


def test_only_changes_that_cannot_be_applied_make_a_minicluster_outdated() -> None:
    obj = job()
    cluster = render(obj)
    for change in ({"priority": 5}, {"suspend": True}, {"ttlSecondsAfterFinished": 1}):
        obj["spec"] |= change
        assert not is_spec_outdated(obj, cluster)
    obj["spec"]["command"] = "other"
    assert is_command_outdated(obj, cluster)
    assert not is_spec_outdated(obj, cluster)
    obj["spec"]["size"] = 3
    assert is_spec_outdated(obj, cluster)


def test_changed_size_of_an_elastic_job_is_passed_on_once() -> None:
    obj = job(size=1, template={"maxSize": 4})
    cluster = render(obj)
    cluster["spec"]["size"] = 4  # scaled by another client
    assert size_patch(obj, cluster) is None
    obj["spec"]["size"] = 2
    assert not is_spec_outdated(obj, cluster)
    patch = size_patch(obj, cluster)
    assert patch is not None
    assert patch["spec"] == {"size": 2}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"command": None}, False),
        ({"command": None, "template": {"containers": [{"commands": {"script": "x"}}]}}, True),
        ({"template": {"interactive": True}}, False),
    ],
)
def test_command_of_a_minicluster(spec: dict[str, Any], expected: bool) -> None:
    assert has_command(render(job(**spec))) is expected
