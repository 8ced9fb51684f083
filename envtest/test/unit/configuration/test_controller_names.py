"""The names of controllers in kube-controller-manager's ``--controllers``."""

from __future__ import annotations

import pytest

from envtest.configuration.controller_names import (
    DEFAULT,
    KUBE_CONTROLLERS,
    kube_controllers,
    missing_controllers,
    select_controllers,
)
from envtest.controllers import AVAILABLE


def test_every_name_is_a_controller() -> None:
    assert KUBE_CONTROLLERS.keys() <= AVAILABLE.keys()
    assert set(DEFAULT) <= KUBE_CONTROLLERS.keys()


def test_names_of_kube_controller_manager() -> None:
    assert kube_controllers(["deployment", "replicaset"]) == [
        "deployment-controller",
        "replicaset-controller",
    ]
    with pytest.raises(
        ValueError,
        match=r"controller 'pods': the real control plane has only gc, namespace.*--control-plane=embedded",
    ):
        kube_controllers(["gc", "pods"])


@pytest.mark.parametrize(
    ("items", "controllers", "missing"),
    [
        ([], (), ()),
        (["*"], tuple(KUBE_CONTROLLERS), ()),
        (["*", "-garbagecollector"], tuple(name for name in KUBE_CONTROLLERS if name != "gc"), ()),
        (["*", "bootstrapsigner", "tokencleaner"], tuple(KUBE_CONTROLLERS), ()),
        (["garbage-collector-controller", "namespace"], ("gc", "namespace"), ()),
        (["serviceaccount", "serviceaccount-token"], ("serviceaccount",), ()),
        (["job", "ttl-controller"], ("job",), ("ttl-controller",)),
        (["job", "-job"], (), ()),
    ],
)
def test_selection(
    items: list[str], controllers: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    assert select_controllers(items) == (controllers, missing)


@pytest.mark.parametrize(
    ("api_version", "kind", "running", "missing"),
    [
        ("v1", "Pod", DEFAULT, ["pods"]),
        ("apps/v1", "ReplicaSet", ["deployment", "pods"], []),
        ("apps/v1", "ReplicaSet", ["pods"], ["replicaset"]),
        ("batch/v1", "CronJob", ["job"], ["cronjob", "pods"]),
        ("batch.example.com/v1", "Job", [], []),
        ("v1", "ConfigMap", [], []),
    ],
)
def test_controllers_that_write_a_status_are_known(
    api_version: str, kind: str, running: list[str], missing: list[str]
) -> None:
    assert missing_controllers(api_version, kind, running) == missing
