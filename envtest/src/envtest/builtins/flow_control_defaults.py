"""The flow schemas and priority levels of every control plane; two of each are mandatory and cannot change."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.created_fields import condition_entry, creation_entry
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object

__all__ = [
    "AUTO_UPDATE",
    "FIXED_LEVELS",
    "FIXED_SCHEMAS",
    "FLOW_SCHEMAS",
    "LEVELS",
    "PRIORITY_LEVELS",
    "SCHEMAS",
    "dangling_condition",
    "flow_schema",
    "priority_level",
]

_GROUP: Final = "flowcontrol.apiserver.k8s.io"
FLOW_SCHEMAS: Final = GroupResource(_GROUP, "flowschemas")
PRIORITY_LEVELS: Final = GroupResource(_GROUP, "prioritylevelconfigurations")
_CONSUMER: Final = "api-priority-and-fairness-config-consumer-v1"
_PRODUCER: Final = "api-priority-and-fairness-config-producer-v1"
AUTO_UPDATE: Final = "apf.kubernetes.io/autoupdate-spec"
"""The annotation of the objects whose spec the API server maintains."""

_MANDATORY = ("exempt", "catch-all")
_AUTHENTICATION = ("system:unauthenticated", "system:authenticated")


def _group(*names: str) -> list[dict[str, Any]]:
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def _user(*names: str) -> list[dict[str, Any]]:
    return [{"kind": "User", "user": {"name": name}} for name in names]


def _account(namespace: str) -> list[dict[str, Any]]:
    return [{"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": "*"}}]


def _rule(
    verbs: Sequence[str], group: str, resources: Sequence[str], *, cluster_scope: bool = False
) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "verbs": list(verbs),
        "apiGroups": [group],
        "resources": list(resources),
    }
    if cluster_scope:
        rule["clusterScope"] = True
    return {**rule, "namespaces": ["*"]}


def _everything(subjects: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "subjects": subjects,
        "resourceRules": [_rule(["*"], "*", ["*"], cluster_scope=True)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }


def _schema(level: str, precedence: int, method: str, rule: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
    }
    if method:
        spec["distinguisherMethod"] = {"type": method}
    return {**spec, "rules": [rule]}


def _level(shares: int, lendable: int, queues: int, hand: int) -> dict[str, Any]:
    queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": 50}
    response = {"type": "Queue", "queuing": queuing} if queues else {"type": "Reject"}
    limited = {
        "nominalConcurrencyShares": shares,
        "limitResponse": response,
        "lendablePercent": lendable,
    }
    return {"type": "Limited", "limited": limited}


_PROBES = {
    "subjects": _group(*_AUTHENTICATION),
    "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
}
_LEADERS = {
    "subjects": [
        *_user("system:kube-controller-manager", "system:kube-scheduler"),
        *_account("kube-system"),
    ],
    "resourceRules": [_rule(["get", "create", "update"], "coordination.k8s.io", ["leases"])],
}
_NODES = {
    "subjects": _group("system:nodes"),
    "resourceRules": [
        _rule(["*"], "", ["nodes", "nodes/status"], cluster_scope=True),
        _rule(["*"], "coordination.k8s.io", ["leases"]),
    ],
}

SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "exempt": _schema("exempt", 1, "", _everything(_group("system:masters"))),
    "probes": _schema("exempt", 2, "", _PROBES),
    "system-leader-election": _schema("leader-election", 100, "ByUser", _LEADERS),
    "system-node-high": _schema("node-high", 400, "ByUser", _NODES),
    "system-nodes": _schema("system", 500, "ByUser", _everything(_group("system:nodes"))),
    **{
        name: _schema("workload-high", 800, "ByNamespace", _everything(_user(f"system:{name}")))
        for name in ("kube-controller-manager", "kube-scheduler")
    },
    "kube-system-service-accounts": _schema(
        "workload-high", 900, "ByNamespace", _everything(_account("kube-system"))
    ),
    "service-accounts": _schema(
        "workload-low", 9000, "ByUser", _everything(_group("system:serviceaccounts"))
    ),
    "global-default": _schema(
        "global-default", 9900, "ByUser", _everything(_group(*_AUTHENTICATION))
    ),
    "catch-all": _schema("catch-all", 10000, "ByUser", _everything(_group(*_AUTHENTICATION))),
}
"""The specs of the flow schemas by name."""

LEVELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "exempt": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
    "catch-all": _level(5, 0, 0, 0),
    "leader-election": _level(10, 0, 16, 4),
    "workload-high": _level(40, 50, 128, 6),
    "workload-low": _level(100, 90, 128, 6),
    "global-default": _level(20, 50, 128, 6),
    "node-high": _level(40, 25, 64, 6),
    "system": _level(30, 33, 64, 6),
}
"""The specs of the priority levels by name."""

FIXED_SCHEMAS: Final = {name: SCHEMAS[name] for name in _MANDATORY}
FIXED_LEVELS: Final = {name: LEVELS[name] for name in _MANDATORY}


def dangling_condition(level: str, *, exists: bool) -> dict[str, str]:
    """Return the condition of a FlowSchema that says whether its priority level exists, without a time."""
    text = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
    if exists:
        status = "False"
        reason = "Found"
        message = f"{text} and it exists"
    else:
        status = "True"
        reason = "NotFound"
        message = f"{text} but there is no such object"
    return {"type": "Dangling", "status": status, "reason": reason, "message": message}


def flow_schema(name: str, spec: Mapping[str, Any], now: str) -> Object:
    """Return the FlowSchema of every control plane with this name, whose priority level exists."""
    condition = dangling_condition(spec["priorityLevelConfiguration"]["name"], exists=True)
    status = {"conditions": [{**condition, "lastTransitionTime": now}]}
    obj = _object("FlowSchema", name, spec, status)
    obj["metadata"]["managedFields"] = [
        condition_entry(status["conditions"][0], obj["apiVersion"], _CONSUMER, now),
        creation_entry(obj, _PRODUCER, now),
    ]
    return obj


def priority_level(name: str, spec: Mapping[str, Any], now: str) -> Object:
    """Return the PriorityLevelConfiguration of every control plane with this name."""
    obj = _object("PriorityLevelConfiguration", name, spec, {})
    obj["metadata"]["managedFields"] = [creation_entry(obj, _PRODUCER, now)]
    return obj


def _object(kind: str, name: str, spec: Mapping[str, Any], status: dict[str, Any]) -> Object:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "generation": 1, "annotations": {AUTO_UPDATE: "true"}},
        "spec": copy.deepcopy(spec),
        "status": status,
    }
