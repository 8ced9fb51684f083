"""Flux: whatever an API server stores, each object is validated, rendered, counted, and gets a status."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER, STATES, SUCCEEDED
from cfo.api.flux.validation import error_message
from cfo.api.flux.validation.minicluster import minicluster_warnings, validate_minicluster
from cfo.api.flux.validation.queue import (
    validate_flux_job,
)
from cfo.controllers.flux.fluxjob.rendering import desired_minicluster
from cfo.controllers.flux.fluxjob.step import JobObservation
from cfo.controllers.flux.fluxjob.transition import decide_step
from cfo.controllers.flux.minicluster.plan import Plan
from cfo.controllers.flux.minicluster.pods import desired_service_pod
from cfo.controllers.flux.minicluster.resources import (
    desired_config_map,
    desired_job,
    desired_service,
)
from cfo.controllers.flux.minicluster.status import Observed, desired_status, notices
from cfo.runtime.objects.unstructured import Object, key_of
from cfo.runtime.webhook.review_handlers import ValidatingHandler
from cfo.webhooks.flux import FluxJobValidator, FluxSetupValidator, MiniClusterValidator
from test.fuzz.bounds import assert_readable, assert_small, limited_time
from test.fuzz.reviews import Reviewer
from test.fuzz.seeds import Corpus
from test.fuzz.stored_objects import as_stored
from test.support.flux_environment import flux_job, flux_setup, mini_cluster
from test.support.flux_queue import Queue

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAX_TEXT = 131_072
MAX_STATUS = 262_144
RESOURCES = {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": 1}}
CONTAINER: Object = {
    "image": "ubuntu:noble",
    "name": "worker",
    "command": "hostname",
    "environment": {"A": "b"},
    "secrets": {"TOKEN": {"name": "s", "key": "k"}},
    "volumes": {
        "data": {"path": "/data", "claimName": "c"},
        "shm": {"emptyDir": True, "emptyDirSizeLimit": "1Gi"},
    },
    "resources": RESOURCES,
    "ports": [8080],
    "commands": {"pre": "true", "prefix": "time", "script": "", "init": "x=1"},
    "lifeCycle": {"postStartExec": "true"},
    "securityContext": {"privileged": False},
}
FLUX: Object = {
    "optionFlags": "-ompi=x",
    "logLevel": 7,
    "connectTimeout": "5s",
    "topology": "kary:2",
    "environment": {"A": "b"},
    "container": {"resources": RESOURCES, "mountPath": "/mnt/flux", "name": "flux-view"},
    "bursting": {"clusters": [{"name": "burst-0", "size": 2}]},
    "scheduler": {"queuePolicy": "easy"},
}
POD: Object = {
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "nodeAffinity": {"zone": ["a"]},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "resources": {"cpu": "1m"},
    "runtimeClassName": "kata",
    "restartPolicy": "Never",
}
SIDECAR = {"image": "i", "name": "sidecar", "ports": [80], "resources": RESOURCES}
SPEC: Object = {
    "size": 2,
    "maxSize": 4,
    "minSize": 1,
    "tasks": 3,
    "deadlineSeconds": 60,
    "flux": FLUX,
    "pod": POD,
    "network": {"headlessName": "net"},
    "logging": {"strict": True},
    "archive": {"path": "/a"},
    "jobLabels": {"a": "b"},
    "containers": [{**CONTAINER, "runFlux": True}, SIDECAR],
    "services": [{"image": "i", "name": "registry", "ports": [5000]}],
}
FULL_JOB = flux_job(
    resources=RESOURCES,
    environment={"A": "b"},
    priority=1,
    deadlineSeconds=60,
    template={**SPEC, "cleanup": True},
)
FULL_SETUP = flux_setup(
    resources={"cpu": "10"},
    max_jobs=5,
    namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
    weights={"ns": 2},
    preemption="LowerPriority",
    mini_cluster={"flux": FLUX, "pod": POD, "image": "i"},
)
CLUSTERS = Corpus([mini_cluster(), mini_cluster(**SPEC)])
JOBS = Corpus([flux_job(), FULL_JOB, flux_job(priorityClassName="high", workingDir="/", image="i")])
SETUPS = Corpus([flux_setup(), FULL_SETUP])
CONDITIONS = st.lists(
    st.sampled_from([*STATES, SUCCEEDED, "QuotaReserved", "Evicted"]), max_size=3, unique=True
)


def check_minicluster(cluster: Any, true: list[str] = [], *, has_job: bool = False) -> None:  # noqa: B006
    stored = _stored(cluster, true)
    if stored is None:
        return
    before = json.dumps(stored)
    with limited_time():
        errors = validate_minicluster(stored)
        message = error_message(errors) if errors else ""
        assert_readable([message, *map(str, errors), *minicluster_warnings(stored)], MAX_TEXT)
        job = None
        if not errors:
            plan = Plan.of(stored)
            job = desired_job(plan)
            objects = [
                job,
                desired_config_map(plan),
                desired_service(plan),
                desired_service_pod(plan),
            ]
            assert_small(objects, 8 * len(before) + 100_000)
            for obj in objects:
                assert obj["metadata"]["namespace"] == "ns"
        status = desired_status(stored, Observed(job=job if has_job else None, error=message), NOW)
        assert_small(status, MAX_STATUS)
        assert_readable((text for event in notices(stored, status) for text in event), MAX_TEXT)
        queue = Queue(resources={"cpu": "1"})
        queue.put(MINICLUSTER, stored)
        queue.put_job("other")
        assert queue.decide().pods == 2, "the spec of a MiniCluster holds quota"
    assert as_stored({**stored, "status": status}) is not None, "the status violates the CRD"
    assert json.dumps(stored) == before, "an argument was modified"


def check_flux_job(job: Any, true: list[str] = [], setup: Any = FULL_SETUP) -> None:  # noqa: B006
    stored, stored_setup = _stored(job, true), as_stored(setup, "setup", "operator")
    if stored is None or stored_setup is None:
        return
    before = json.dumps([stored, stored_setup])
    with limited_time():
        errors = validate_flux_job(stored)
        message = error_message(errors) if errors else ""
        assert_readable([message, *map(str, errors)], MAX_TEXT)
        queue = Queue(resources={"cpu": "1"})
        queue.put(FLUX_SETUP, stored_setup)
        queue.put(FLUX_JOB, stored)
        totals = queue.decide()
        assert totals.pods >= 0
        verdict = queue.ledger.verdict(key_of(stored), stored["metadata"]["uid"], 1)
        if verdict is not None:
            assert_readable([verdict.message], MAX_TEXT)
        cluster = desired_minicluster(stored, stored_setup)
        assert_small(cluster, 2 * len(before) + 10_000)
        for seen in (None, cluster):
            observation = JobObservation(
                job=stored, now=NOW, validation_error=message, named_cluster=seen, verdict=verdict
            )
            step = decide_step(observation)
            status = step.status.as_object()
            assert_small(status, MAX_STATUS)
            assert_readable((text for event in step.events for text in event), MAX_TEXT)
    assert as_stored({**stored, "status": status}) is not None, "the status violates the CRD"
    assert json.dumps([stored, stored_setup]) == before, "an argument was modified"


def _stored(obj: Any, true: list[str]) -> Object | None:
    stored = as_stored(obj)
    if stored is None:
        return None
    time = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": time}
        for kind in true
    ]
    stored["metadata"]["generation"] = 1
    stored["status"] = {"jobid": "x", "conditions": conditions, "observedGeneration": 1}
    if stored["kind"] == "MiniCluster":
        stored["status"] |= {"size": 0, "maximumSize": 0, "selector": ""}
    return stored


REVIEWERS = {
    kind: Reviewer(None, ValidatingHandler(validator, kind))
    for kind, validator in (
        (MINICLUSTER, MiniClusterValidator()),
        (FLUX_JOB, FluxJobValidator(lambda job: ())),
        (FLUX_SETUP, FluxSetupValidator()),
    )
}
CORPORA = {MINICLUSTER: CLUSTERS, FLUX_JOB: JOBS, FLUX_SETUP: SETUPS}
