"""The types that type checkers infer from a kind: instances for a class, dicts for a GVK.

This module is not run: mypy (strict) and pyright check it. They report an ``ignore`` comment without an error, too.
"""

from __future__ import annotations

from typing import assert_type

from cfo.runtime import (
    DEPLOYMENT,
    Builder,
    Client,
    Condition,
    Conditions,
    Finalizer,
    Manager,
    Object,
    Request,
    Result,
    ValueChanged,
    has_condition,
    set_finalizer,
    wait_for,
)
from cfo.runtime.client import apply_status
from cfo.runtime.webhook import AdmissionRequest
from test.support.website import Website


class DictWebhook:
    """A defaulter of dicts."""

    def default(self, obj: Object, request: AdmissionRequest) -> None: ...


class WebsiteWebhook:
    """A defaulter of typed objects."""

    def default(self, obj: Website, request: AdmissionRequest) -> None: ...


async def reconcile_website(website: Website) -> Result | None: ...


async def reconcile_dict(obj: Object) -> None: ...


async def check_types(client: Client, request: Request, manager: Manager) -> None:
    website = await client.get(Website, request)
    assert_type(website, Website | None)
    assert_type(await client.get(DEPLOYMENT, request), Object | None)
    assert_type(await client.list(Website), list[Website])
    assert_type(await client.list(DEPLOYMENT), list[Object])
    assert_type(await client.patch(Website, request, {}), Website)
    assert website is not None
    assert_type(await client.create(website), Website)
    assert_type(await client.update(website, subresource="status"), Website)
    assert_type(await client.apply(website), Website)
    assert_type(await client.apply({"kind": "ConfigMap", "data": {"a": "b"}}), Object)
    assert_type(website.spec.replicas, int)
    Builder(manager).for_(Website, ValueChanged(Website, lambda obj: obj.spec.html)).owns(
        DEPLOYMENT
    )
    manager.webhooks.register(Website, defaulter=WebsiteWebhook())
    manager.webhooks.register(DEPLOYMENT, defaulter=DictWebhook())
    assert_type(Conditions(website, now=manager.clock.now()).as_models(), list[Condition])
    assert_type(
        await wait_for(client, Website, request, has_condition("Ready"), timeout=1), Website | None
    )
    assert_type(
        await wait_for(client, DEPLOYMENT, request, has_condition("Ready"), timeout=1),
        Object | None,
    )
    await wait_for(
        client, Website, request, lambda obj: obj is not None and obj.spec.replicas > 1, timeout=1
    )
    assert_type(await set_finalizer(client, website, "example.com/a", present=True), Website | None)
    finalizer = Finalizer(client, "example.com/a")
    await finalizer.reconcile(website, apply=reconcile_website, cleanup=reconcile_website)
    await finalizer.reconcile({}, apply=reconcile_dict, cleanup=reconcile_dict)
    website.spec.replicas = "one"  # type: ignore[assignment]
    ValueChanged(Website, lambda obj: obj.spec.color)  # type: ignore[attr-defined]
    manager.webhooks.register(Website, defaulter=DictWebhook())  # type: ignore[misc]
    await apply_status(client, website, website.status)
    await apply_status(client, website, 5)  # type: ignore[call-overload]
    await apply_status(client, {}, 5)  # type: ignore[call-overload]
    await client.get("Website", request)  # type: ignore[arg-type]
    await finalizer.reconcile(website, apply=reconcile_dict, cleanup=reconcile_dict)  # type: ignore[arg-type]
    await wait_for(client, Website, request, lambda obj: obj.spec.color, timeout=1)  # type: ignore[union-attr]
