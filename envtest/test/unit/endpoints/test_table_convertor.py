"""Tables for kubectl: printer columns of built-in kinds and custom resources, JSONPath."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from envtest.apimachinery.objects import Object
from envtest.endpoints.table_convertor import convert_to_table
from envtest.formats import jsonpath
from envtest.printers import PRINTERS
from envtest.printers.columns import selector_text, since
from envtest.registry.resource import ResourceInfo, Strategy

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CREATED = "2026-01-01T23:59:00Z"


def info(kind: str, group: str = "", **more: Any) -> ResourceInfo:
    return ResourceInfo(
        group, "v1", f"{kind.lower()}s", kind.lower(), kind, True, Strategy(), **more
    )


def obj(kind: str = "ConfigMap", **content: Any) -> Object:
    metadata = {"name": "a", "creationTimestamp": CREATED, **content.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **content}


def row(kind: str, group: str = "", **content: Any) -> list[Any]:
    cells: list[Any] = convert_to_table(info(kind, group), [obj(kind, **content)], now=NOW)["rows"][
        0
    ]["cells"]
    return cells


def test_table_has_columns_and_one_row_per_object() -> None:
    table = convert_to_table(
        info("ConfigMap"), [obj(data={"k": "v"})], metadata={"resourceVersion": "7"}, now=NOW
    )
    assert (table["kind"], table["apiVersion"], table["metadata"]) == (
        "Table",
        "meta.k8s.io/v1",
        {"resourceVersion": "7"},
    )
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"] == [
        {
            "cells": ["a", 1, "60s"],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": "a", "creationTimestamp": CREATED},
            },
        }
    ]


@pytest.mark.parametrize(("include", "expected"), [("None", None), ("Object", obj())])
def test_row_contains_the_requested_object(include: str, expected: Any) -> None:
    assert (
        convert_to_table(info("ConfigMap"), [obj()], include=include, now=NOW)["rows"][0]["object"]
        == expected
    )


def test_later_watch_events_have_no_columns() -> None:
    assert convert_to_table(info("ConfigMap"), [obj()], headers=False)["columnDefinitions"] is None


def test_empty_continue_token_is_omitted() -> None:
    table = convert_to_table(
        info("ConfigMap"), [], metadata={"resourceVersion": "7", "continue": ""}
    )
    assert table["metadata"] == {"resourceVersion": "7"}
    assert table["rows"] == []


def test_other_kinds_show_creation_time() -> None:
    table = convert_to_table(info("Role", "rbac.authorization.k8s.io"), [obj("Role")])
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Created At"]
    assert table["rows"][0]["cells"] == ["a", CREATED]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 61, "3h1m"),
        (9 * 3600 + 61, "9h"),
        (49 * 3600, "2d1h"),
        (9 * 86400 + 3600, "9d"),
        (366 * 2 * 86400, "2y2d"),
        (365 * 9 * 86400, "9y"),
    ],
)
def test_age_is_formatted_as_in_kubectl(seconds: int, text: str) -> None:
    assert since(NOW - timedelta(seconds=seconds), NOW) == text


def test_selector_is_formatted() -> None:
    selector = {
        "matchLabels": {"b": "1"},
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "DoesNotExist"},
        ],
    }
    assert selector_text(selector) == "a in (x,y),b=1,!c"
    assert selector_text({}) == selector_text(None) == "<none>"


def test_service_cells() -> None:
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]
    spec = {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "ports": ports, "selector": {"a": "b"}}
    assert row("Service", spec=spec) == [
        "a",
        "LoadBalancer",
        "10.0.0.1",
        "<pending>",
        "80:30080/TCP,53/UDP",
        "60s",
        "a=b",
    ]
    assert row("Service", spec={"type": "ExternalName", "externalName": "x.io"})[2:5] == [
        "<none>",
        "x.io",
        "<none>",
    ]


def test_deployment_cells() -> None:
    spec = {
        "replicas": 3,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}
        },
    }
    status = {"readyReplicas": 1, "updatedReplicas": 2}
    assert row("Deployment", "apps", spec=spec, status=status) == [
        "a",
        "1/3",
        2,
        0,
        "60s",
        "c,d",
        "i,j",
        "a=b",
    ]


def test_job_cells() -> None:
    status = {
        "succeeded": 1,
        "startTime": "2026-01-01T23:00:00Z",
        "completionTime": "2026-01-01T23:05:10Z",
    }
    status["conditions"] = [{"type": "Complete", "status": "True"}]
    assert row("Job", "batch", spec={"completions": 2}, status=status)[1:5] == [
        "Complete",
        "1/2",
        "5m10s",
        "60s",
    ]
    assert row("Job", "batch", spec={"parallelism": 3})[1:4] == ["Running", "0/1 of 3", ""]


def running(**more: Any) -> dict[str, Any]:
    return {"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}, **more}


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        ({"phase": "Pending"}, ["0/1", "Pending", "0"]),
        ({"phase": "Running", "containerStatuses": [running()]}, ["1/1", "Running", "0"]),
        (
            {
                "phase": "Running",
                "containerStatuses": [running(ready=False, state={"waiting": {"reason": "Crash"}})],
            },
            ["0/1", "Crash", "0"],
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [running(ready=False, state={"terminated": {"exitCode": 3}})],
            },
            ["0/1", "ExitCode:3", "0"],
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [
                    running(
                        restartCount=2,
                        lastState={"terminated": {"finishedAt": "2026-01-01T23:59:30Z"}},
                    )
                ],
            },
            ["1/1", "Running", "2 (30s ago)"],
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "Pull"}}}],
            },
            ["0/1", "Init:Pull", "0"],
        ),
        ({"phase": "Pending", "reason": "Evicted"}, ["0/1", "Evicted", "0"]),
    ],
)
def test_pod_cells(status: Any, cells: list[Any]) -> None:
    assert row("Pod", spec={"containers": [{"name": "c"}]}, status=status)[1:4] == cells


def test_terminating_and_finished_pods() -> None:
    terminating = {"deletionTimestamp": CREATED}
    assert (
        row("Pod", metadata=terminating, spec={"containers": [{}]}, status={"phase": "Running"})[2]
        == "Terminating"
    )
    table = convert_to_table(info("Pod"), [obj("Pod", status={"phase": "Succeeded"})], now=NOW)
    assert table["rows"][0]["conditions"][0]["reason"] == "Succeeded"


def test_running_pod_counts_restarts_of_sidecars_but_not_of_init_containers() -> None:
    last = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T23:50:00Z"}}
    state = {"terminated": {"exitCode": 0}}
    started: dict[str, Any] = {"running": {}}
    status = {
        "phase": "Running",
        "initContainerStatuses": [
            {"name": "once", "restartCount": 3, "state": state, "lastState": last},
            {
                "name": "side",
                "restartCount": 1,
                "state": started,
                "lastState": last,
                "started": True,
                "ready": True,
            },
        ],
        "containerStatuses": [{"name": "main", "restartCount": 0, "state": started, "ready": True}],
    }
    spec = {
        "initContainers": [{"name": "once"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}],
    }
    assert row("Pod", spec=spec, status=status)[1:4] == ["2/2", "Running", "1 (10m ago)"]


def test_quota_shows_requests_and_limits_separately() -> None:
    status = {"hard": {"limits.cpu": "4", "requests.cpu": "2", "pods": "9"}, "used": {"pods": "1"}}
    assert row("ResourceQuota", status=status)[1:3] == [
        "pods: 1/9, requests.cpu: 0/2",
        "limits.cpu: 0/4",
    ]


def test_event_shows_its_source() -> None:
    source = row("Event", source={"component": "scheduler"}, reportingInstance="node-1")[5]
    assert source == "scheduler, node-1"


@pytest.mark.parametrize(
    ("status", "deleted", "text"),
    [
        ({}, False, "pending"),
        ({"allocation": {}}, False, "allocated"),
        ({"allocation": {}, "reservedFor": [{}]}, True, "deleted,allocated,reserved"),
    ],
)
def test_resource_claim_state(status: Any, deleted: bool, text: str) -> None:
    metadata = {"deletionTimestamp": CREATED} if deleted else {}
    assert row("ResourceClaim", "resource.k8s.io", status=status, metadata=metadata)[1] == text


def test_ip_address_shows_its_parent() -> None:
    parent = {"group": "g.io", "resource": "Things", "namespace": "ns", "name": "x"}
    assert (
        row("IPAddress", "networking.k8s.io", spec={"parentRef": parent})[1] == "things.g.io/ns/x"
    )


def test_priority_level_cells() -> None:
    queuing = {"queues": 8, "handSize": 2, "queueLengthLimit": 50}
    spec = {
        "type": "Limited",
        "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"queuing": queuing}},
    }
    group = "flowcontrol.apiserver.k8s.io"
    assert row("PriorityLevelConfiguration", group, spec=spec)[1:6] == ["Limited", 5, 8, 2, 50]
    assert row("PriorityLevelConfiguration", group, spec={"type": "Exempt"})[1:6] == [
        "Exempt",
        *["<none>"] * 4,
    ]


@pytest.mark.parametrize("kind", sorted(PRINTERS))
def test_every_printer_returns_all_cells_for_an_empty_object(kind: tuple[str, str]) -> None:
    columns, cells = PRINTERS[kind]
    undescribed = 1 if kind[1] == "IPAddress" else 0  # kube-apiserver does not describe its age
    assert len(cells(obj(kind[1]), NOW)) == len(columns) + undescribed


COLUMNS = (
    {"name": "Wheels", "type": "integer", "jsonPath": ".spec.wheels", "description": "how many"},
    {"name": "Since", "type": "date", "jsonPath": ".spec.since"},
    {"name": "Tags", "type": "string", "jsonPath": ".spec.tags", "priority": 1},
    {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
    {"name": "Share", "type": "number", "jsonPath": ".spec.share"},
    {"name": "Broken", "type": "string", "jsonPath": ".spec["},
)


def cart(**spec: Any) -> list[Any]:
    cart_info = info("Cart", "x.io", is_crd=True, columns=COLUMNS)
    cells: list[Any] = convert_to_table(cart_info, [obj("Cart", spec=spec)], now=NOW)["rows"][0][
        "cells"
    ]
    return cells


def test_custom_columns_are_converted_to_their_type() -> None:
    assert cart(wheels=4, since="2026-01-01T23:59:59Z", tags=["a", "b"], on=False, share=1) == [
        "a",
        4,
        "1s",
        '["a","b"]',
        False,
        1.0,
        None,
    ]
    assert cart(wheels="four", since="yesterday", tags=5, on="yes") == [
        "a",
        None,
        "<invalid>",
        "5",
        None,
        None,
        None,
    ]
    assert cart() == ["a", None, None, None, None, None, None]


def test_custom_column_descriptions() -> None:
    table = convert_to_table(info("Cart", "x.io", is_crd=True, columns=COLUMNS), [])
    assert [column["description"] for column in table["columnDefinitions"]][1:3] == [
        "how many",
        "Custom resource definition column (in JSONPath format): .spec.since",
    ]


def test_custom_resource_without_columns_shows_age() -> None:
    table = convert_to_table(info("Cart", "x.io", is_crd=True), [obj("Cart")], now=NOW)
    assert [(column["name"], column["type"]) for column in table["columnDefinitions"]] == [
        ("Name", "string"),
        ("Age", "date"),
    ]
    assert table["rows"][0]["cells"] == ["a", "60s"]


DOCUMENT = {
    "spec": {"a.b": 1, "list": [{"n": 1, "v": "x"}, {"n": 2, "v": "y"}], "deep": {"n": 3}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.deep.n", [3]),
        ("$.spec.deep.n", [3]),
        ("{.spec.deep.n}", [3]),
        ("spec.deep.n", [3]),
        (".spec['a.b']", [1]),
        (r".spec.a\.b", [1]),
        (".spec.list[0].v", ["x"]),
        (".spec.list[-1].v", ["y"]),
        (".spec.list[0:1].v", ["x"]),
        (".spec.list[*].v", ["x", "y"]),
        (".spec.list[5].v", []),
        (".spec.list[?(@.n==2)].v", ["y"]),
        (".spec.list[?(@.n>=1)].v", ["x", "y"]),
        (".spec.list[?(@.w)].v", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type!='Ready')].status", ["False"]),
        ("..n", [3, 1, 2]),
        (".spec.nosuch.deeper", []),
    ],
)
def test_json_path_finds_values(path: str, found: list[Any]) -> None:
    assert sorted(map(str, jsonpath.find(path, DOCUMENT))) == sorted(map(str, found))


@pytest.mark.parametrize("path", [".spec[", ".spec[?(@.a==)]", ".spec[x]", ".a..", "]"])
def test_invalid_json_path_is_rejected(path: str) -> None:
    with pytest.raises(jsonpath.InvalidPath):
        jsonpath.find(path, DOCUMENT)
