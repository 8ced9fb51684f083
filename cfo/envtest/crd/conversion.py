"""Conversion of custom resources between versions: none but the apiVersion, or by webhook."""

from __future__ import annotations

import base64
import ssl
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from cfo.envtest.errors import plain_error
from cfo.envtest.registry import Converter
from cfo.envtest.schema.node import Schema
from cfo.envtest.schema.shaping import compile_pruner, copy_json
from cfo.runtime.objects import Object

__all__ = ["Conversions"]

Resolve = Callable[[Mapping[str, Any]], str]
"""From a ``service`` reference to the URL of a local endpoint; raises LookupError."""

_TIMEOUT = aiohttp.ClientTimeout(total=30)


class Conversions:
    """Makes converters. ``resolve`` finds the endpoints of service references; without it there are none."""

    def __init__(self) -> None:
        self.resolve: Resolve | None = None

    def converter(self, crd: Mapping[str, Any]) -> Converter | None:
        """The converter of a definition; ``None`` where it has but one version."""
        conversion = crd["spec"].get("conversion") or {}
        if conversion.get("strategy") != "Webhook":
            return None if len(crd["spec"]["versions"]) == 1 else _renaming(crd)
        webhook = conversion["webhook"]
        kind = crd["spec"]["names"]["kind"]

        async def convert(objects: Sequence[Object], api_version: str) -> list[Object]:
            changing = [obj for obj in objects if obj.get("apiVersion") != api_version]
            if not changing:
                return list(objects)
            try:
                converted = await self._ask(webhook, changing, api_version)
            except _ConversionError as error:
                text = f"conversion webhook for {changing[0].get('apiVersion')}, Kind={kind} failed: {error}"
                raise plain_error(text) from None
            rest = iter(_checked(changing, converted, api_version, kind))
            return [obj if obj.get("apiVersion") == api_version else next(rest) for obj in objects]

        return convert

    async def _ask(self, webhook: Mapping[str, Any], objects: Sequence[Object], api_version: str) -> list[Any]:
        client = webhook["clientConfig"]
        versions = webhook.get("conversionReviewVersions") or ["v1"]
        review_version = next((each for each in versions if each in ("v1", "v1beta1")), "v1")
        uid = str(uuid.uuid4())
        review = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{review_version}",
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": list(objects)},
        }
        answer = await self._post(client, review)
        response = answer.get("response") if isinstance(answer, dict) else None
        if not isinstance(response, dict):
            raise _ConversionError("expected response.uid, got none")
        if response.get("uid") != uid:
            raise _ConversionError(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
        result = response.get("result") or {}
        if result.get("status") != "Success":
            raise _ConversionError(result.get("message") or "(no message)")
        converted = response.get("convertedObjects") or []
        if len(converted) != len(objects):
            raise _ConversionError(f"webhook returned {len(converted)} objects, expected {len(objects)}")
        return list(converted)

    async def _post(self, client: Mapping[str, Any], review: Mapping[str, Any]) -> Any:
        url = client.get("url") or self._service_url(client.get("service") or {})
        context = ssl.create_default_context()
        if client.get("caBundle"):
            context = ssl.create_default_context(cadata=base64.b64decode(client["caBundle"]).decode())
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                session.post(
                    url, data=orjson.dumps(review), headers={"Content-Type": "application/json"}, ssl=context
                ) as response,
            ):
                body = await response.read()
                if response.status >= 300:
                    raise _ConversionError(f"the server responded with {response.status}")
                return orjson.loads(body)
        except (aiohttp.ClientError, OSError, TimeoutError, orjson.JSONDecodeError) as error:
            raise _ConversionError(f'Post "{url}": {error}') from None

    def _service_url(self, service: Mapping[str, Any]) -> str:
        if self.resolve is not None:
            try:
                return self.resolve(service)
            except LookupError:
                pass
        name, namespace = service.get("name"), service.get("namespace")
        raise _ConversionError(f'service "{name}" in namespace "{namespace}" has no local endpoint')


def _renaming(crd: Mapping[str, Any]) -> Converter:
    """The strategy ``None``: another apiVersion, and what its schema does not know is lost."""
    group = crd["spec"]["group"]
    pruners = {
        f"{group}/{version['name']}": compile_pruner(
            Schema((version.get("schema") or {}).get("openAPIV3Schema") or {}), resource_root=True
        )
        for version in crd["spec"]["versions"]
    }

    async def convert(objects: Sequence[Object], api_version: str) -> list[Object]:
        prune = pruners[api_version]
        converted: list[Object] = []
        for obj in objects:
            new = obj if obj.get("apiVersion") == api_version else {**copy_json(obj), "apiVersion": api_version}
            prune(new, "", [])
            converted.append(new)
        return converted

    return convert


class _ConversionError(Exception):
    """The webhook did not convert."""


def _checked(before: Sequence[Object], after: Sequence[Any], api_version: str, kind: str) -> list[Object]:
    """The converted objects, with the metadata that a conversion may not touch; raises StatusError (500)."""
    out: list[Object] = []
    for position, (old, new) in enumerate(zip(before, after, strict=True)):
        where = f"conversion webhook for {old.get('apiVersion')}, Kind={kind} returned invalid converted object at index {position}: "
        if not isinstance(new, dict) or new.get("apiVersion") != api_version or new.get("kind") != old.get("kind"):
            raise plain_error(where + "invalid groupVersion or kind")
        metadata = new.get("metadata") or {}
        for name in ("name", "namespace", "uid"):
            if metadata.get(name) != old["metadata"].get(name):
                raise plain_error(where + f"metadata.{name} must not be changed")
        kept = {**old["metadata"]}
        for name in ("labels", "annotations"):
            kept.pop(name, None)
            if metadata.get(name):
                kept[name] = metadata[name]
        new["metadata"] = kept
        out.append(new)
    return out
