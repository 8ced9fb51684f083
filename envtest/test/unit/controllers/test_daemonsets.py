"""DaemonSets: nodes, tolerations and updates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.controllers.daemon_pods import HASH, node_of, outdated_pods, should_run
from test.support.headless_plane import HeadlessPlane, headless_plane

NODES = GroupResource("", "nodes")
PODS = GroupResource("", "pods")
DAEMON_SETS = GroupResource("apps", "daemonsets")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def daemon_set(strategy: Any = None, **pod_spec: Any) -> Object:
    return {
        "spec": {
            "template": {"spec": pod_spec},
            "updateStrategy": strategy or {"type": "RollingUpdate"},
        }
    }


def node(name: str = "n", labels: Any = None, *taints: tuple[str, str]) -> Object:
    found = [{"key": key, "effect": effect} for key, effect in taints]
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": found}}


def affinity(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }


@pytest.mark.parametrize(
    ("pod_spec", "taints", "labels", "expected"),
    [
        ({}, [], {}, (True, True)),
        ({"nodeSelector": {"zone": "a"}}, [], {}, (False, False)),
        ({"nodeSelector": {"zone": "a"}}, [], {"zone": "a"}, (True, True)),
        ({"affinity": affinity("NotIn", "a")}, [], {"zone": "a"}, (False, False)),
        ({"affinity": affinity("Gt", "3")}, [], {"zone": "4"}, (True, True)),
        ({"affinity": affinity("Gt", "3")}, [], {"zone": "x"}, (False, False)),
        ({"affinity": affinity("Exists")}, [], {"zone": ""}, (True, True)),
        ({"nodeName": "other"}, [], {}, (False, False)),
        ({}, [("dedicated", "NoSchedule")], {}, (False, True)),
        ({}, [("dedicated", "NoExecute")], {}, (False, False)),
        ({}, [("dedicated", "PreferNoSchedule")], {}, (True, True)),
        ({"tolerations": [{"operator": "Exists"}]}, [("dedicated", "NoExecute")], {}, (True, True)),
        ({}, [("node.kubernetes.io/unschedulable", "NoSchedule")], {}, (True, True)),
        ({}, [("node.kubernetes.io/network-unavailable", "NoSchedule")], {}, (False, True)),
        (
            {"hostNetwork": True},
            [("node.kubernetes.io/network-unavailable", "NoSchedule")],
            {},
            (True, True),
        ),
    ],
)
def test_nodes_of_a_daemon_set(
    pod_spec: Any, taints: Any, labels: Any, expected: tuple[bool, bool]
) -> None:
    assert should_run(daemon_set(**pod_spec), node("n", labels, *taints)) == expected


def pod(name: str, revision: str, ready: str = "True") -> Object:
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name, "labels": {HASH: revision}},
        "status": {"phase": "Running", "conditions": conditions},
    }


@pytest.mark.parametrize(
    ("strategy", "pods", "expected"),
    [
        ({"type": "RollingUpdate"}, ["old", "old", "old"], {"0"}),
        ({"type": "RollingUpdate"}, ["new", "old", "old"], {"1"}),
        ({"type": "RollingUpdate"}, ["new!", "old", "old"], set()),
        ({"type": "RollingUpdate"}, ["new!", "old!", "old"], {"1"}),
        (
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "60%"}},
            ["old", "old", "old"],
            {"0", "1"},
        ),
        ({"type": "OnDelete"}, ["old", "old", "old"], set()),
    ],
)
def test_outdated_pods_are_replaced(strategy: Any, pods: list[str], expected: set[str]) -> None:
    by_node = {
        str(number): [pod(str(number), text.rstrip("!"), "False" if "!" in text else "True")]
        for number, text in enumerate(pods)
    }
    found = outdated_pods(daemon_set(strategy), by_node, len(pods), "new", NOW)
    assert {each["metadata"]["name"] for each in found} == expected


async def create_node(plane: HeadlessPlane, name: str, **labels: str) -> Object:
    await plane.create(name, resource=NODES, metadata={"labels": labels})
    created = plane.get(name, NODES, "")
    assert created is not None
    await plane.edit(created, lambda obj: obj["spec"].pop("taints", None), NODES)
    return created


async def test_each_selected_node_has_a_pod() -> None:
    async with headless_plane("daemonset") as plane:
        await create_node(plane, "a", zone="x")
        await create_node(plane, "b")
        template = {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"zone": "x"}},
        }
        spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
        await plane.create("d", resource=DAEMON_SETS, spec=spec)

        def nodes() -> list[str]:
            return sorted(node_of(each) for each in plane.list(PODS))

        await plane.until(lambda: nodes() == ["a"])
        other = plane.get("b", NODES, "")
        assert other is not None
        await plane.edit(other, lambda obj: obj["metadata"].update(labels={"zone": "x"}), NODES)
        await plane.until(lambda: nodes() == ["a", "b"])
        await plane.until(
            lambda: (plane.get("d", DAEMON_SETS) or {})["status"].get("currentNumberScheduled") == 2
        )
        await plane.delete(other, resource=NODES)
        await plane.until(lambda: nodes() == ["a"])


async def test_daemon_pods_run_on_the_node_of_the_pod_runner() -> None:
    async with headless_plane("daemonset", "pods") as plane:
        template = {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
        created = await plane.create("d", resource=DAEMON_SETS, spec=spec)
        await plane.until(
            lambda: (plane.get("d", DAEMON_SETS) or {})["status"].get("numberAvailable") == 1
        )
        before = plane.names(PODS)

        def change(obj: Object) -> None:
            obj["spec"]["template"]["spec"]["containers"][0]["image"] = "new"

        await plane.edit(created, change, DAEMON_SETS)
        await plane.until(lambda: plane.names(PODS) and not before & plane.names(PODS))
        await plane.until(
            lambda: (plane.get("d", DAEMON_SETS) or {})["status"].get("updatedNumberScheduled") == 1
        )


async def test_failing_daemon_pods_are_replaced_with_back_off() -> None:
    async with headless_plane("daemonset", "pods") as plane:
        metadata = {"labels": {"app": "d"}, "annotations": {"envtest.cfo/phase": "Failed"}}
        template = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
        seen: set[str] = set()
        plane.core.store.journal.append(
            lambda resource, change: seen.add(change.record.name) if resource == PODS else None
        )
        await plane.create("d", resource=DAEMON_SETS, spec=spec)
        await plane.until(lambda: len(seen) >= 2)
        await plane.core.clock.advance(60)
        assert 5 <= len(seen) <= 8
