"""The decisions about AppWrappers: whatever an API server stores, also without admission, has a next step."""

from __future__ import annotations

import copy
from datetime import timedelta

from hypothesis import strategies as st

from cfo.api.appwrapper.names import ANNOTATION_PREFIX, APPWRAPPER
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.appwrapper_settings import Settings
from cfo.controllers.appwrapper.components import (
    ComponentObject,
)
from cfo.controllers.appwrapper.pods import Termination, WrapperPod
from cfo.runtime.objects.unstructured import Object
from test.fuzz.bounds import assert_readable, limited_time
from test.fuzz.mutations import HOSTILE, mutate, mutated
from test.fuzz.seeds import Corpus
from test.support.properties import CHARACTERS

_POD = {"spec": {"containers": [{"name": "a", "image": "b"}]}}
_JOB = {"template": {"spec": {"template": _POD}}}
_AFTER = [{"name": "download", "status": "Complete"}]
_NODES = {"name": "node", "template": {"spec": {"template": _POD}}}


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}
"""A valid owner reference of an object in a template."""


def _wrapper_of(api_version: str, kind: str, spec: Object, *paths: str) -> Object:
    template = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    pod_sets = [{"path": path} for path in paths]
    component = {"template": template, **({"podSets": pod_sets} if pod_sets else {})}
    return {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"components": [component]},
    }


IN_ORDER = [
    _wrapper_of(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "replicatedJobs": [
                {"name": "download", **_JOB},
                {"name": "train", **_JOB, "dependsOn": _AFTER},
            ],
        },
    ),
    _wrapper_of(
        "kubeflow.org/v2beta1",
        "MPIJob",
        {
            "launcherCreationPolicy": "WaitForWorkersReady",
            "mpiReplicaSpecs": {"Launcher": {"template": _POD}, "Worker": {"template": _POD}},
        },
    ),
    _wrapper_of(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        {
            "runtimePatches": [
                {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [_NODES]}}}}
            ]
        },
        "template.spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template",
    ),
    _wrapper_of("apps/v1", "StatefulSet", {"podManagementPolicy": "Parallel", "template": _POD}),
]
"""Kinds whose pods wait for others, which no sample has."""

CORPUS = Corpus(IN_ORDER, kind="AppWrapper")


@st.composite
def mutated_templates(draw: st.DrawFn) -> Object:
    """Mutate only a wrapped object, whose types the CRD of AppWrappers does not restrict: its spec, or all of it."""
    wrapper = copy.deepcopy(draw(st.sampled_from(CORPUS.objects)))
    for component in wrapper["spec"].get("components") or ():
        template = component["template"]
        template.setdefault("metadata", {})["ownerReferences"] = [dict(OWNER)]
        for _ in range(draw(st.integers(0, 4))):
            mutate(draw, template.setdefault("spec", {}), CORPUS)
        if draw(st.booleans()):
            mutate(draw, template, CORPUS)
    return wrapper


WRAPPERS = mutated(CORPUS, 6) | mutated_templates()
CONFIG = AppWrapperConfiguration.from_document({"enabled": True, "schedulerName": "fair"})
PODS = st.lists(
    st.builds(
        WrapperPod,
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
        deleting=st.booleans(),
        terminated=st.tuples(
            st.builds(
                Termination,
                st.text(CHARACTERS, max_size=8),
                st.integers(0, 255),
                st.text(CHARACTERS, max_size=100),
            )
        ),
    ),
    max_size=4,
)
OBJECTS = st.sampled_from(
    [
        None,
        ComponentObject("u"),
        ComponentObject("u", owned=False),
        ComponentObject("u", failed=True),
    ]
)
MAX_SECONDS = 1.0
MAX_STATUS = 2 << 20


ANNOTATIONS = [
    f"{ANNOTATION_PREFIX}{name}"
    for name in (
        "warmupGracePeriodDuration",
        "successTTLDuration",
        "retryLimit",
        "terminalExitCodes",
    )
]
VALUES = st.sampled_from([*HOSTILE, "90s", "-1h", "1e400h", "3,137,x", "", "0", "9" * 18, "9" * 19])


def check_settings(annotations: dict[str, str]) -> None:
    config = CONFIG.fault_tolerance
    with limited_time():
        settings = Settings.of({"metadata": {"annotations": annotations}}, config)
    assert_readable(settings.problems, 10_000)
    assert len(settings.problems) <= 10
    assert len(settings.terminal_exit_codes) <= 100
    assert timedelta(0) <= settings.warmup_grace <= config.grace_period_ceiling
