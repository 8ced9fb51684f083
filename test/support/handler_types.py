"""The mistakes that type checkers find in handlers with the decorators of kopf, and what is right.

This module is not run: mypy (strict) and pyright check it. They report an ``ignore`` comment without an error, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

import cfo_handlers as kopf
from cfo.runtime import Client


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None: ...


@kopf.on.create("websites", labels={"a": kopf.PRESENT, "b": "c", "d": lambda value, **_: True})
@kopf.on.update("websites", field="spec.html", old=None, new="x", when=lambda spec, **_: True)
@kopf.on.field("example.com/v1", "websites", field=("spec", "html"))
def typed(
    body: kopf.Body,
    spec: kopf.Spec,
    name: str,
    namespace: str,
    old: str | None,
    diff: kopf.Diff,
    client: kopf.SyncClient,
    indices: Mapping[str, kopf.Index[str, str]],
    **_: Any,
) -> dict[str, str]:
    return {}


@kopf.on.delete(kopf.EVERYTHING, optional=True)
@kopf.on.resume(lambda resource: resource.namespaced, deleted=True)
async def async_handler(client: Client, namespace: str | None, **_: Any) -> None:
    @kopf.subhandler(id="a", errors=kopf.ErrorsMode.PERMANENT, retries=3)
    def run(retry: int, **_: Any) -> None: ...

    kopf.register(run, id="b")
    kopf.subhandler(retry=3)  # type: ignore[call-arg]


@kopf.on.validate(kind="Website", operations=["CREATE", "UPDATE"], subresource="*")
def check(warnings: list[str], dryrun: bool, userinfo: kopf.UserInfo, **_: Any) -> None: ...


@kopf.timer("websites", interval=5, idle=10.5, sharp=True)
def tick(memo: kopf.Memo, patch: kopf.Patch, **_: Any) -> None: ...


def without_keywords(spec: kopf.Spec) -> None: ...


def wrong_keyword(spec: dict[str, Any], **_: Any) -> None: ...


def wrong_setting(settings: dict[str, Any], **_: Any) -> None: ...


async def async_filter(**_: Any) -> bool:
    return True


assert_type(typed(name="a"), dict[str, str])  # type: ignore[call-arg]
kopf.on.create("websites")(without_keywords)  # type: ignore[type-var]
kopf.daemon("websites")(wrong_keyword)  # type: ignore[type-var]
kopf.on.startup()(wrong_setting)  # type: ignore[type-var]
kopf.on.create(tick)  # type: ignore[arg-type]
kopf.on.create(5)  # type: ignore[arg-type]
kopf.on.create("websites", labels="x")  # type: ignore[arg-type]
kopf.on.create("websites", lables={"a": "b"})  # type: ignore[call-arg]
kopf.on.create("websites", annotations={"a": 5})  # type: ignore[dict-item]
kopf.on.create("websites", when=async_filter)  # type: ignore[arg-type]
kopf.on.create("websites", retries="3")  # type: ignore[arg-type]
kopf.on.create("websites", errors="ignored")  # type: ignore[arg-type]
kopf.on.create("websites", old=1)  # type: ignore[call-arg]
kopf.on.field("websites")  # type: ignore[call-arg]
kopf.on.delete("websites", optional="yes")  # type: ignore[arg-type]
kopf.on.mutate("websites", operation="CREAT")  # type: ignore[arg-type]
kopf.timer("websites", interval="5")  # type: ignore[arg-type]
kopf.timer("websites", cancellation_timeout=5)  # type: ignore[call-arg]
kopf.daemon("websites", initial_delay=async_filter)  # type: ignore[arg-type]
kopf.on.probe(id=5)  # type: ignore[arg-type]
