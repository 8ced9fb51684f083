"""Small operators for the tests of chaos: each parent, a ConfigMap with a label, gets one child."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp

from envtest.api_client import APIClient, Response
from envtest.chaos import Connection

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PARENTS = {"labelSelector": "role=parent"}
CHILDREN = {"labelSelector": "role=child"}
RETRY_SECONDS = 0.05

Reconcile = Callable[[APIClient, dict[str, Any]], Awaitable[None]]


def parent(name: str = "a", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"role": "parent"}},
        "data": data,
    }


def child(owner: dict[str, Any], **metadata: str) -> dict[str, Any]:
    name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
    return {
        "metadata": {**metadata, "labels": {"role": "child"}, "ownerReferences": [reference]},
        "data": owner.get("data") or {},
    }


class Failed(Exception):
    """A request failed."""


def checked(response: Response, *allowed: int) -> Response:
    if response.code >= 300 and response.code not in allowed:
        raise Failed(response.code)
    return response


def operator(reconcile: Reconcile) -> Callable[[Connection], Awaitable[None]]:
    """Return an operator that calls ``reconcile`` with each parent that is created or changed, until it succeeds."""

    async def run(connection: Connection) -> None:
        async with APIClient(connection) as api:
            for attempt in itertools.count(1):
                try:
                    await _follow(api, reconcile)
                except (Failed, aiohttp.ClientError, AssertionError):
                    await asyncio.sleep(RETRY_SECONDS * attempt)

    return run


async def _follow(api: APIClient, reconcile: Reconcile) -> None:
    listed = checked(await api.get(CONFIG_MAPS, PARENTS)).body
    for each in listed["items"]:
        await _until_done(api, reconcile, each)
    start = {**PARENTS, "resourceVersion": listed["metadata"]["resourceVersion"]}
    async with api.watch(CONFIG_MAPS, start) as events:
        while True:
            try:
                event = await events.event()
            except TimeoutError:
                continue
            if event["type"] == "ERROR":
                return
            if event["type"] != "DELETED":
                await _until_done(api, reconcile, event["object"])


async def _until_done(api: APIClient, reconcile: Reconcile, obj: dict[str, Any]) -> None:
    for attempt in itertools.count(1):
        with suppress(Failed, aiohttp.ClientError):
            await reconcile(api, obj)
            return
        await asyncio.sleep(RETRY_SECONDS * attempt)


async def keep_child(api: APIClient, owner: dict[str, Any]) -> None:
    """The correct one: the child has the name of its parent, and is compared before it is written."""
    name = owner["metadata"]["name"]
    if checked(await api.get(f"{CONFIG_MAPS}/{name}"), 404).code == 404:
        return
    desired = child(owner, name=f"{name}-child")
    found = checked(await api.get(f"{CONFIG_MAPS}/{name}-child"), 404)
    if found.code == 404:
        checked(await api.post(CONFIG_MAPS, desired), 409)
    elif found.body.get("data", {}) != desired["data"]:
        checked(
            await api.put(f"{CONFIG_MAPS}/{name}-child", {**found.body, "data": desired["data"]})
        )


async def generate_child(api: APIClient, owner: dict[str, Any]) -> None:
    """Wrong: if it crashes before it has stored the generated name, it creates another child."""
    name = owner["metadata"]["name"]
    if "child" in (owner["metadata"].get("annotations") or {}):
        return
    created = checked(await api.post(CONFIG_MAPS, child(owner, generateName=f"{name}-"))).body
    annotations = {"child": created["metadata"]["name"]}
    checked(await api.merge(f"{CONFIG_MAPS}/{name}", {"metadata": {"annotations": annotations}}))


async def forget_child(api: APIClient, owner: dict[str, Any]) -> None:
    """Wrong: it notes that the child exists before it creates it."""
    name = owner["metadata"]["name"]
    if "done" in (owner["metadata"].get("annotations") or {}):
        return
    checked(
        await api.merge(f"{CONFIG_MAPS}/{name}", {"metadata": {"annotations": {"done": "yes"}}})
    )
    checked(await api.post(CONFIG_MAPS, child(owner, name=f"{name}-child")))


async def count_reconciles(api: APIClient, owner: dict[str, Any]) -> None:
    """Wrong: each write causes the next event."""
    metadata = owner["metadata"]
    count = int((metadata.get("annotations") or {}).get("count", "0"))
    patch = {"metadata": {"annotations": {"count": str(count + 1)}}}
    checked(await api.merge(f"{CONFIG_MAPS}/{metadata['name']}", patch), 404)
