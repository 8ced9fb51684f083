"""InferenceStacks on an API server with the CRDs and the webhook, and the objects that are rendered from them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import yaml

from cfo.api.inferencestack.models import inference_stack_crds
from cfo.api.inferencestack.profiles import newest_profile
from cfo.config.model import InferenceStackConfiguration
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime.client.apply import ApplyIntent, is_applied
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.unstructured import Object, gvk_of, key_of
from cfo.webhooks.inferencestack import setup
from envtest import ControlPlane
from envtest.api_client import APIClient, Response
from test.support.config_map_webhooks import OPTIONS, free_url, wait_until
from test.support.inference_stacks import SHARED, needs_samples, samples, stack
from test.support.raycluster_environment import crd


def path_of(obj: Object, name: str = "", namespace: str = "default") -> str:
    return f"/apis/{obj['apiVersion']}/namespaces/{namespace}/inferencestacks" + (
        f"/{name}" if name else ""
    )


def in_default(obj: Object) -> Object:
    obj["metadata"] = {
        key: value for key, value in obj["metadata"].items() if key not in ("namespace", "uid")
    }
    return obj


@asynccontextmanager
async def start_admission() -> AsyncIterator[APIClient]:
    """Run a control plane whose InferenceStacks of version v2 are validated, until the end of the block."""
    async with (
        ControlPlane.auto(crds=inference_stack_crds()) as plane,
        APIClient(plane) as api,
        Transport(ClientConfig.for_control_plane(plane)) as transport,
    ):
        options = ManagerOptions(field_manager="tester", webhook=replace(OPTIONS, url=free_url()))
        manager = Manager(transport, options)
        setup(manager, InferenceStackConfiguration(enabled=True, operator_version="v2"))
        async with manager:
            await manager.started()

            async def is_called() -> bool:
                answer = await api.post(
                    path_of(stack()), in_default(stack({"gateway": {}})), query={"dryRun": "All"}
                )
                return answer.code == 403

            await wait_until(is_called, "webhook calls")
            yield api


async def test_stacks_are_validated_by_the_schema_and_the_webhook() -> None:
    async with start_admission() as api:
        await check_samples(api)
        await check_schema(api)
        await check_updates(api)


async def check_samples(api: APIClient) -> None:
    """Valid samples are stored unchanged, with warnings; invalid ones are rejected by the webhook."""
    if not SHARED.exists():
        return
    for name in ("01-seed", "02-seed-v2", "04-empty"):
        for sample in samples(name):
            answer = await api.post(path_of(sample), sample)
            assert (answer.code, answer.body["spec"]) == (201, sample["spec"]), answer.body
            is_warned = "no GPU" in answer.headers.get("Warning", "")
            assert is_warned == (name == "02-seed-v2"), (
                answer.headers
            )  # 01 is a stack of operator v1
    for sample in samples("90-invalid"):
        answer = await api.post(path_of(sample), sample)
        assert answer.code == 403, answer.body
        assert (
            'admission webhook "vinferencestack.doublewordai.co" denied the request'
            in answer.body["message"]
        )


async def check_schema(api: APIClient) -> None:
    """The CRD accepts what existing stacks contain, and rejects what its rules forbid."""

    async def create(spec: Any, name: str) -> Response:
        # another operator's stack: the webhook does not validate it
        return await api.post(
            path_of(stack()), {**in_default(stack(name=name, version="v5")), "spec": spec}
        )

    spec = {
        "gateway": {
            "image": {"tag": None},
            "config": None,
            "livenessProbe": {},
            "future": {"a": [1]},
        },
        "applicationTemplate": {
            "env": None,
            "service": {"type": "ClusterIP"},
            "livenessProbe": None,
        },
        "applications": {
            "a": {"readerConfig": {"maxBatchSize": "8", "unknown": True}, "cache": {"size": 1}}
        },
    }
    created = await create(spec, "s")
    assert (created.code, created.body["spec"]) == (201, spec), created.body
    created.body["spec"]["applications"]["a"]["cache"] = {"size": 2, "storageClass": "fast"}
    answer = await api.request("PUT", path_of(stack(), "s"), created.body)
    assert "storageClass of an existing volume cannot be changed" in answer.body["message"]
    for wrong, message in (
        (
            {"applications": {"a": {"cache": {"size": 1}, "modelsVolume": {"name": "m"}}}},
            "must not both be set",
        ),
        (
            {"gateway": {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}},
            "must not both be set",
        ),
        (
            {"applications": {"a": {"engine": "sglang"}}},
            'supported values: "takeoff", "external", "vllm"',
        ),
        ({"securityProfile": "none"}, 'supported values: "restricted"'),
        (
            {"applications": {str(number): {} for number in range(101)}},
            "must have at most 100 items",
        ),
        ({"gateway": {"replicaCount": "two"}}, "must be of type integer"),
        ({"gateway": {"httpRoute": {"parentRefs": []}}}, "should have at least 1 items"),
    ):
        answer = await create(wrong, "wrong")
        assert answer.code == 422, wrong
        assert message in answer.body["message"], answer.body["message"]
    status = {  # as the original operator writes it
        "conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2025-04-01T00:00:00Z"}
        ],
        "deployedRelease": {"name": "s", "manifest": "---"},
    }
    latest = (await api.get(path_of(stack(), "s"))).body
    answer = await api.request(
        "PUT", path_of(stack(), "s", "default") + "/status", {**latest, "status": status}
    )
    assert (answer.code, answer.body.get("status")) == (200, status), answer.body


async def check_updates(api: APIClient) -> None:
    """A stack from before the validation can be changed, but not made worse; it can be handed over only when valid."""
    old = {
        **in_default(stack(name="old", version="v5")),
        "spec": {"applications": {"Bad_Name": {}}},
    }
    created = (await api.post(path_of(old), old)).body
    patch = {"content_type": "application/merge-patch+json"}
    answer = await api.request(
        "PATCH", path_of(old, "old"), {"metadata": {"labels": {"operatorVersion": "v2"}}}, **patch
    )
    assert answer.code == 200, "the error is not new, so the controller reports it"
    answer = await api.request(
        "PATCH", path_of(old, "old"), {"spec": {"applications": {"gateway": {}}}}, **patch
    )
    assert answer.code == 403
    assert "spec.applications[gateway]: Forbidden: reserved" in answer.body["message"]
    assert created["metadata"]["name"] == "old"
    answer = await api.request("DELETE", path_of(old, "old"))
    assert answer.code == 200


EVERYTHING: dict[str, Any] = {
    "imagePullSecrets": [{"name": "regcred"}],
    "networkPolicy": {"enabled": True},
    "securityProfile": "restricted",
    "gateway": {
        "exportPrometheusMetrics": True,
        "podDisruptionBudget": {"minAvailable": 1},
        "resources": {"limits": {"memory": "1024Mi", "cpu": 0.5}, "requests": {"cpu": "0.25"}},
        "ingress": {
            "enabled": True,
            "hosts": [{"host": "a.example.com", "paths": [{"path": "/"}]}],
        },
        "httpRoute": {
            "parentRefs": [{"name": "gw"}],
            "rules": [
                {"matches": [{"headers": [{"name": "x", "value": "1"}]}]},
                {"timeouts": {"request": "60s"}},
            ],
        },
        "service": {
            "ports": [
                {"port": 80, "targetPort": "openai", "name": "http"},
                {"port": 3005, "name": "internal"},
            ]
        },
    },
    "applicationTemplate": {
        "env": [
            {"name": "EMPTY", "value": ""},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "2048Mi"}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
                    ]
                }
            }
        },
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 3000}},
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1024Mi"}}],
        "nodeSelector": {"a": "b"},
    },
    "applications": {
        "keda": {"scaling": {"enabled": True}, "podDisruptionBudget": {"maxUnavailable": "25%"}},
        "hpa": {
            "engine": "external",
            "sidecar": {"ports": [{"containerPort": 9}]},
            "scaling": {
                "enabled": True,
                "type": "HPA",
                "metrics": [
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": "q"},
                            "target": {"type": "AverageValue", "averageValue": "0.5"},
                        },
                    }
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
            },
        },
        "cached": {
            "cache": {"size": "1024Gi", "storageClass": "fast"},
            "strategy": {"type": "Recreate"},
        },
    },
}


@needs_samples
async def test_rendered_objects_are_stored_as_rendered() -> None:
    """Each object is accepted, and applying it again would change nothing: also after a restart, no write is sent."""
    names = ("gateway.networking.k8s.io_httproutes", "keda.sh_scaledobjects")
    crds = [yaml.safe_load((SHARED / "crds" / f"{name}.yaml").read_text()) for name in names]
    crds.append(crd("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"))
    async with (
        ControlPlane.auto(crds=crds) as plane,
        Transport(ClientConfig.for_control_plane(plane)) as transport,
    ):
        client = Client(transport, RESTMapper(transport), field_manager="inference-stack-operator")
        obj = stack(**EVERYTHING)
        obj["metadata"]["namespace"] = "default"
        objects = render(obj, newest_profile("v2"))
        assert len(objects) == 19
        for desired in objects:
            await client.apply(desired)
        for desired in objects:
            stored = await client.get(gvk_of(desired), key_of(desired))
            assert stored is not None
            intent = ApplyIntent(desired, "inference-stack-operator")
            managers = stored["metadata"]["managedFields"]
            assert is_applied(intent, stored, managers), (gvk_of(desired).kind, desired, stored)
