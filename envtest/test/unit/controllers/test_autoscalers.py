"""HorizontalPodAutoscalers without a metrics API."""

from __future__ import annotations

from typing import Any

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object, find_condition
from test.support.headless_plane import HeadlessPlane, headless_plane

EVENTS = GroupResource("", "events")
DEPLOYMENTS = GroupResource("apps", "deployments")
AUTOSCALERS = GroupResource("autoscaling", "horizontalpodautoscalers")


def deployment(replicas: int) -> Object:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}


async def autoscaler(plane: HeadlessPlane, kind: str = "Deployment", **spec: Any) -> None:
    target = {"apiVersion": "apps/v1", "kind": kind, "name": "w"}
    await plane.create(
        "h", resource=AUTOSCALERS, spec={"scaleTargetRef": target, "maxReplicas": 3, **spec}
    )


def condition(plane: HeadlessPlane, kind: str) -> Object:
    status = (plane.get("h", AUTOSCALERS) or {}).get("status") or {}
    return dict(find_condition(status.get("conditions"), kind) or {})


async def test_missing_metrics_are_reported() -> None:
    async with headless_plane("horizontalpodautoscaling") as plane:
        await plane.create("w", resource=DEPLOYMENTS, spec=deployment(2))
        await autoscaler(plane)
        await plane.until(lambda: condition(plane, "ScalingActive"))
        assert condition(plane, "AbleToScale")["reason"] == "SucceededGetScale"
        active = condition(plane, "ScalingActive")
        assert (active["status"], active["reason"]) == ("False", "FailedGetResourceMetric")
        assert active["message"] == (
            "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for "
            "resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested "
            "resource (get pods.metrics.k8s.io)"
        )
        await plane.until(lambda: len(plane.list(EVENTS)) == 2)
        assert {each["reason"] for each in plane.list(EVENTS)} == {
            "FailedGetResourceMetric",
            "FailedComputeMetricsReplicas",
        }


async def test_target_is_kept_within_its_bounds() -> None:
    async with headless_plane("horizontalpodautoscaling") as plane:
        created = await plane.create("w", resource=DEPLOYMENTS, spec=deployment(5))
        await autoscaler(plane, minReplicas=2)
        await plane.until(lambda: (plane.get("w", DEPLOYMENTS) or {})["spec"]["replicas"] == 3)
        await plane.until(lambda: condition(plane, "ScalingActive"))
        await plane.edit(created, lambda obj: obj["spec"].update(replicas=1), DEPLOYMENTS)
        await plane.until(lambda: (plane.get("w", DEPLOYMENTS) or {})["spec"]["replicas"] == 2)
        await plane.edit(created, lambda obj: obj["spec"].update(replicas=0), DEPLOYMENTS)
        await plane.until(lambda: condition(plane, "ScalingActive")["reason"] == "ScalingDisabled")


async def test_missing_target_is_reported_and_found_later() -> None:
    async with headless_plane("horizontalpodautoscaling") as plane:
        await autoscaler(plane)
        await plane.until(lambda: condition(plane, "AbleToScale"))
        assert condition(plane, "AbleToScale")["message"] == (
            'the HPA controller was unable to get the target\'s current scale: deployments.apps "w" not found'
        )
        await plane.create("w", resource=DEPLOYMENTS, spec=deployment(1))
        await plane.until(lambda: condition(plane, "AbleToScale")["status"] == "True")
