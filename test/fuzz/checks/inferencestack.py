"""InferenceStacks: whatever an API server stores is rendered or invalid."""

from __future__ import annotations

import json
from typing import Any, cast

from cfo.api.inferencestack.kinds import INFERENCE_STACKS, is_operator_version, operator_version_of
from cfo.api.inferencestack.profiles import newest_profile, pinned_profile
from cfo.api.inferencestack.validation.stack import validate
from cfo.config.model import InferenceStackConfiguration
from cfo.controllers.inferencestack.profile_choice import choose_profile
from cfo.controllers.inferencestack.rendering.facts import Facts
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.controllers.inferencestack.status import StackOutcome, stack_status
from cfo.runtime import Client
from cfo.runtime.webhook.review_handlers import ValidatingHandler
from cfo.webhooks.access import AccessReviewer
from cfo.webhooks.inferencestack import InferenceStackWebhook
from test.fuzz.bounds import assert_readable, assert_small, limited_time
from test.fuzz.mutations import mutated
from test.fuzz.reviews import Reviewer
from test.fuzz.seeds import Corpus
from test.fuzz.stored_objects import as_stored
from test.support.inference_stacks import stack, vllm_stack

NOW = "2026-01-01T00:00:00Z"
MAX_TEXT = 262_144
METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
FULL = stack(
    {
        "a": {
            "readerConfig": {
                "modelName": "m",
                "device": "cuda",
                "accessToken": "secret",
                "consumerGroup": "g",
            },
            "replicaCount": 2,
            "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "1"}},
            "env": [{"name": "A", "value": "b"}],
            "podLabels": {"a": "b"},
            "podAnnotations": {"a": "b"},
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "scaling": {
                "enabled": True,
                "spec": {"minReplicaCount": 1},
                "metricTarget": {"value": 3},
            },
            "cache": {"size": "1Gi", "storageClass": "fast"},
            "shmSize": "1Gi",
            "startupProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5},
            "podDisruptionBudget": {"maxUnavailable": "50%"},
        },
        "b": {
            "readerConfig": {"modelName": "n", "device": "cpu"},
            "scaling": {
                "enabled": True,
                "type": "HPA",
                "metrics": [METRIC],
                "spec": {"maxReplicaCount": 3},
            },
            "modelsVolume": {"name": "models", "emptyDir": {"sizeLimit": "1Gi"}},
        },
    },
    gateway={
        "replicaCount": 2,
        "resources": {"limits": {"memory": "1Gi"}},
        "service": {"type": "ClusterIP", "annotations": {"a": "b"}},
        "ingress": {
            "enabled": True,
            "hosts": [{"host": "a.test", "paths": [{"path": "/"}]}],
            "className": "nginx",
        },
        "httpRoute": {
            "parentRefs": [{"name": "gw"}],
            "hostnames": ["b.test"],
            "rules": [{"matches": []}],
        },
        "exportPrometheusMetrics": True,
        "config": {"internalPort": 3005},
    },
    imagePullSecrets=[{"name": "s"}],
    serviceAccount={"name": "x", "annotations": {"a": "b"}},
    networkPolicy={"enabled": True},
    securityProfile="restricted",
)
VLLM = vllm_stack(
    {
        "a": {
            "readerConfig": {"consumerGroup": "g", "tensorParallel": 1, "maxSequenceLength": "8"},
            "loraAdapters": [{"name": "sql", "path": "org/sql"}],
            "extraArgs": ["--dtype=float32", "--enforce-eager"],
            "cache": {"size": "1Gi"},
        }
    },
    replicas=2,
    securityProfile="restricted",
)
SMALL = stack({"a": {"readerConfig": {"modelName": "m"}}})
CORPUS = Corpus([SMALL, FULL, VLLM], "InferenceStack")
STACKS = mutated(CORPUS, 3)


def check_stack(obj: Any) -> None:
    stored = as_stored(obj)
    if stored is None:
        return
    before = json.dumps(stored)
    version = operator_version_of(stored)
    profile = pinned_profile(stored) or newest_profile(
        version if is_operator_version(version) else "v2"
    )
    with limited_time():
        result = validate(stored, profile)
        errors = [str(error) for error in result.errors]
        assert_readable([*errors, *result.warnings], MAX_TEXT)
    if not errors:
        with limited_time():
            choose_profile(stored, version, {})
        with limited_time():
            assert_small(render(stored, profile, Facts()), 40 * len(before) + 100_000)
    status = stack_status(stored, StackOutcome(profile=profile, errors=errors), NOW)
    assert_small(status, 65_536)
    assert as_stored({**stored, "status": status}) is not None, "the status violates the CRD"
    assert json.dumps(stored) == before, "an argument was modified"


REVIEWER = Reviewer(
    None,
    ValidatingHandler(
        InferenceStackWebhook(
            InferenceStackConfiguration(operator_version="v2"),
            AccessReviewer(cast("Client", None), check_permissions=False),
        ),
        INFERENCE_STACKS[0],
    ),
)
