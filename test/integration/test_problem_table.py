"""The table of docs/status.md: what people see of each cause, produced on the embedded control plane."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import anyio
import pytest
from anyio.abc import TaskStatus

from cfo import operator
from cfo.api.appwrapper.names import ANNOTATION_PREFIX, APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.demo.raycluster_nodes import setup as simulate_pods
from cfo.console.demo.run import CONFIGURATION, control_plane
from cfo.controllers.appwrapper import readiness
from cfo.controllers.flux.minicluster import job_changes
from cfo.controllers.inferencestack import claims
from cfo.dashboard.state import row_of
from cfo.features import all_views
from cfo.runtime import (
    GVK,
    NAMESPACE,
    Client,
    ClientConfig,
    Manager,
    NamespacedName,
    Object,
    SystemClock,
    key_of,
    wait_for,
)
from cfo.runtime.objects import CORE_EVENT, new_object
from cfo.runtime.process import free_port
from cfo.runtime.webhook import WebhookURL
from cfo.summaries.kind_view import related_kinds
from cfo.summaries.overview import Overview
from cfo.summaries.summary import Level, Summary
from envtest.api_client import APIClient
from test.support.local_queues import local_queue_crd

PAGE = Path(__file__).parents[2] / "docs" / "status.md"
TIMEOUT_SECONDS = 60.0

KINDS = {
    "RayCluster": (RAY_CLUSTER, "rayclusters"),
    "AppWrapper": (APPWRAPPER, "appwrappers"),
    "FluxJob": (FLUX_JOB, "fluxjobs"),
    "MiniCluster": (MINICLUSTER, "miniclusters"),
    "InferenceStack": (INFERENCE_STACKS[1], "inferencestacks"),
}
VERSION_LABELS: dict[str, dict[str, str]] = {
    "no operator": {"operatorVersion": "v9"},
    "no version": {},
}
"""The labels of an InferenceStack for the causes that its version is."""

RESOURCE_QUOTA = GVK("", "v1", "ResourceQuota")


class LaterClock(SystemClock):
    """A clock that is a minute ahead: what should have happened within a minute is overdue."""

    def now(self) -> datetime:
        return super().now() + timedelta(minutes=1)


def new_object_with(kind: str, cause: str) -> Object:
    """Return an object of ``kind`` that has the problem ``cause``."""
    container: Object = {"name": "main", "image": "example.com/app:1"}
    if cause == "image":
        container["image"] = "example.com/app:not-found"
    if cause == "no node":
        container["resources"] = {"requests": {"cpu": "1000"}}
    gvk, _ = KINDS[kind]
    spec = SPECS[kind](container)
    if cause == "volume":
        add_missing_secret(kind, spec)
    labels: dict[str, str] = {}
    if kind == "InferenceStack":
        labels = dict(VERSION_LABELS.get(cause, {"operatorVersion": "v2"}))
    elif cause == "no operator":
        spec["managedBy"] = "kueue.x-k8s.io/multikueue"
    if cause in ("no LocalQueue", "no Kueue"):
        labels["kueue.x-k8s.io/queue-name"] = "team"
        if kind == "MiniCluster":
            spec["jobLabels"] = dict(labels)
        if kind in ("RayCluster", "AppWrapper"):
            spec["suspend"] = True  # as Kueue's webhook does
    if cause == "typo":
        spec["replicsa"] = 1
    if cause == "component typo":
        spec["components"][0]["template"]["spec"]["paralelism"] = 3
    obj = new_object(gvk, kind.lower(), namespace_of(cause), labels=labels, spec=spec)
    if cause == "annotation typo":
        obj["metadata"]["annotations"] = {f"{ANNOTATION_PREFIX}retrylimit": "1"}
    return obj


def add_missing_secret(kind: str, spec: Object) -> None:
    """Add a volume to the pods of an object whose Secret does not exist."""
    secret = "token-not-found"
    volume = {"name": "token", "secret": {"secretName": secret}}
    if kind == "RayCluster":
        spec["headGroupSpec"]["template"]["spec"]["volumes"] = [volume]
    elif kind == "AppWrapper":
        job = spec["components"][0]["template"]
        job["spec"]["template"]["spec"]["volumes"] = [volume]
    elif kind == "FluxJob":
        volumes = {"token": {"secretName": secret, "path": "/token"}}
        spec["template"] = {"containers": [{"volumes": volumes}]}
    elif kind == "MiniCluster":
        spec["containers"][0]["volumes"] = {"token": {"secretName": secret, "path": "/token"}}
    else:
        spec["gateway"]["volumes"] = [volume]


def namespace_of(cause: str) -> str:
    return cause.replace(" ", "-").lower()


def _ray_cluster(container: Object) -> Object:
    template = {"spec": {"containers": [container]}}
    return {"headGroupSpec": {"rayStartParams": {}, "template": template}}


def _app_wrapper(container: Object) -> Object:
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"template": {"spec": pod}},
    }
    return {"components": [{"template": job}]}


def _flux_job(container: Object) -> Object:
    spec: Object = {"size": 1, "image": container["image"], "command": "true"}
    if "resources" in container:
        spec["resources"] = container["resources"]
    return spec


def _minicluster(container: Object) -> Object:
    return {"size": 1, "containers": [{**container, "command": "true"}]}


def _inference_stack(container: Object) -> Object:
    repository, _, tag = container["image"].partition(":")
    gateway: Object = {"image": {"repository": repository, "tag": tag}}
    if "resources" in container:
        gateway["resources"] = container["resources"]
    return {"gateway": gateway}


SPECS = {
    "RayCluster": _ray_cluster,
    "AppWrapper": _app_wrapper,
    "FluxJob": _flux_job,
    "MiniCluster": _minicluster,
    "InferenceStack": _inference_stack,
}


@asynccontextmanager
async def running_operator(directory: Path) -> AsyncIterator[tuple[ClientConfig, Client, Overview]]:
    """Run a control plane with the operator of all kinds; yield it, a user's client, and the overview of a page."""
    config_map = NamespacedName("ops", "codeflare-operator-config")
    views = all_views()
    overviews: list[Overview] = []

    def configure(manager: Manager) -> None:
        simulate_pods(manager)
        related = related_kinds(views)
        overviews.append(Overview(manager.cache, views, related=related, clock=LaterClock()))

    document = {
        "config.yaml": CONFIGURATION.replace(
            "inferenceStack:\n", "inferenceStack:\n  operatorVersion: v2\n"
        )
    }
    async with (
        control_plane(config_map, document, directory / "kubeconfig") as target,
        anyio.create_task_group() as tasks,
    ):

        async def operate(*, task_status: TaskStatus[Manager]) -> None:
            await operator.run(
                target,
                config_map,
                webhook_url=WebhookURL("127.0.0.1", free_port()),
                configure_manager=configure,
                task_status=task_status,
            )

        manager: Manager = await tasks.start(operate)
        await manager.ready()
        yield target, manager.api_reader.with_field_manager("user"), overviews[0]
        manager.stop()


class Row(NamedTuple):
    """A row of the table: the code spans in its cells."""

    cause: str
    kind: str
    get: str
    describe: tuple[str, ...]
    problem: str


def rows_of_the_page() -> list[Row]:
    table = PAGE.read_text().partition("| cause | kind |")[2].partition("\n\n")[0]
    found = []
    for line in table.splitlines()[2:]:
        cause, kind, get, describe, problem = (
            cell.strip() for cell in line.strip().strip("|").split("|")
        )
        spans = tuple(re.findall("`(.*?)`", describe))
        found.append(Row(cause, kind, get.strip("`"), spans, problem.strip("`")))
    return found


async def refusal(api: APIClient, row: Row) -> str:
    """Create an object as kubectl does; return why it is refused, or an empty string."""
    obj = new_object_with(row.kind, row.cause)
    gvk, plural = KINDS[row.kind]
    path = f"/apis/{gvk.api_version}/namespaces/{namespace_of(row.cause)}/{plural}"
    response = await api.post(f"{path}?fieldValidation=Strict", obj)
    return "" if response.code == 201 else str(response.body["message"])


async def printed_columns(api: APIClient, row: Row) -> list[str]:
    """Return the cells that kubectl get prints."""
    gvk, plural = KINDS[row.kind]
    path = f"/apis/{gvk.api_version}/namespaces/{namespace_of(row.cause)}/{plural}"
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    response = await api.request("GET", f"{path}/{row.kind.lower()}", headers=accept)
    return [str(cell) for cell in response.body["rows"][0]["cells"]]


def described(summary: Summary, warnings: Iterable[Object]) -> set[str]:
    """Return conditions and Warning Events as the table names them."""
    conditions = {f"{each.type}={each.status} {each.reason}" for each in summary.conditions}
    key = summary.key
    about = [
        each["reason"]
        for each in warnings
        if each["involvedObject"]["kind"] == summary.gvk.kind
        and each["involvedObject"]["namespace"] == key.namespace
        and each["involvedObject"]["name"] == key.name
    ]
    return conditions | {f"Event {reason}" for reason in about}


async def prepare(client: Client, causes: Iterable[str]) -> None:
    """Create a namespace for each cause: with a quota of no pods, Pod Security, or no queue."""
    for cause in dict.fromkeys(causes):
        namespace = namespace_of(cause)
        labels = {}
        if cause == "permission":
            labels["pod-security.kubernetes.io/enforce"] = "restricted"
        await client.create(new_object(NAMESPACE, namespace, labels=labels))
        if cause == "quota":
            quota = new_object(RESOURCE_QUOTA, "none", namespace, spec={"hard": {"pods": "0"}})
            await client.create(quota)
            await wait_for(
                client, RESOURCE_QUOTA, key_of(quota), is_counted, timeout=TIMEOUT_SECONDS
            )
        if cause != "no queue":
            spec = {"max-size": 10, "mini-cluster": {"size": 1}}
            await client.create(new_object(FLUX_SETUP, "team", namespace, spec=spec))


def is_counted(quota: Object | None) -> bool:
    return bool(quota and (quota.get("status") or {}).get("hard"))


@pytest.mark.embedded(reason="needs the simulated nodes and KubeRay")
async def test_page_shows_what_people_see_of_each_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(job_changes, "USUAL_CREATION", timedelta(seconds=1))
    monkeypatch.setattr(readiness, "_USUAL_CREATION", timedelta(seconds=1))
    rows = rows_of_the_page()
    assert {row.kind for row in rows} == set(KINDS)
    assert len({row[:2] for row in rows}) == len(rows)
    async with running_operator(tmp_path) as (target, client, overview):
        address = SimpleNamespace(url=target.server, ca_pem=target.ca_pem, token=target.token)
        async with APIClient(address) as api:
            await prepare(client, [row.cause for row in rows])
            without_kueue = [row for row in rows if row.cause == "no Kueue"]
            await check_rows(client, api, overview, without_kueue)
            await client.create(local_queue_crd())
            with_kueue = [row for row in rows if row.cause != "no Kueue"]
            await check_rows(client, api, overview, with_kueue)


async def check_rows(
    client: Client, api: APIClient, overview: Overview, rows: Iterable[Row]
) -> None:
    """Create the object of each row, and wait until all are seen as in the table."""
    created = []
    for row in rows:
        refused = await refusal(api, row)
        if row.get == "refused":
            assert row.problem in refused, row
        else:
            assert refused == "", row
            created.append(row)
    unseen = dict.fromkeys(created, "not seen yet")
    with anyio.move_on_after(TIMEOUT_SECONDS), overview.subscribe() as changes:
        while unseen:
            unseen = await differences(client, api, overview, unseen)
            if unseen:
                with anyio.move_on_after(0.5):
                    await changes.next()
    assert unseen == {}


async def differences(
    client: Client, api: APIClient, overview: Overview, rows: Iterable[Row]
) -> dict[Row, str]:
    """Return the rows that are not as in the table, each with what is seen instead."""
    summaries = {(each.gvk.kind, each.key): each for each in await overview.snapshot()}
    warnings = await client.list(CORE_EVENT, field_selector="type=Warning")
    found = {}
    for row in rows:
        key = NamespacedName(namespace_of(row.cause), row.kind.lower())
        summary = summaries.get((row.kind, key))
        if summary is None:
            found[row] = "no summary"
            continue
        columns = await printed_columns(api, row)
        known = described(summary, warnings)
        shown = [message for message, _ in row_of(summary)["problems"]]
        is_shown = (
            any(row.problem in message for message in shown) and summary.level is not Level.OK
        )
        is_printed = not row.get or row.get in columns
        if not (is_printed and is_shown and known.issuperset(row.describe)):
            found[row] = f"{columns} {sorted(known)} {summary.level} {shown}"
    return found
