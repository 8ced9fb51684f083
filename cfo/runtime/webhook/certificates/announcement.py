"""What configurations tell API servers about webhooks: where they are, and whom to trust. Pure functions.

They work on the ``clientConfig`` of each webhook of a ``MutatingWebhookConfiguration`` or
``ValidatingWebhookConfiguration``, and of the conversion webhook of a ``CustomResourceDefinition``; everything else
(rules, selectors, policies) stays as it is.

While webhooks are served outside of the cluster the configurations hold urls, and the annotation :data:`ORIGINAL` what
they held before. It is there as long as they do, so whoever finds it without serving a url puts things right.
"""

from __future__ import annotations

import copy
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

import orjson

from cfo.runtime.objects import Object, annotations_of, resource_version_of
from cfo.runtime.webhook.options import WebhookURL
from cfo.runtime.webhook.registration import CONVERSION_PATH

__all__ = ["ORIGINAL", "bundles_of", "client_configs", "created", "is_ours_alone", "merge_patch", "revised"]

ORIGINAL: Final = "webhooks.codeflare.dev/original-client-configs"
"""The annotation with the ``clientConfig`` of each webhook as it was before it held a url of ours."""

_CREATED: Final = "created"
_CONVERSION: Final = "conversion"


def client_configs(obj: Object) -> dict[str, dict[str, Any]]:
    """The ``clientConfig`` of each webhook in ``obj`` (not copied), by the webhook's name."""
    if obj.get("kind") == "CustomResourceDefinition":
        conversion = (obj.get("spec") or {}).get("conversion") or {}
        if conversion.get("strategy") != "Webhook":
            return {}
        return {_CONVERSION: conversion.setdefault("webhook", {}).setdefault("clientConfig", {})}
    return {hook["name"]: hook.setdefault("clientConfig", {}) for hook in obj.get("webhooks") or ()}


def bundles_of(obj: Object) -> dict[str, bytes]:
    """The bundle (PEM) of each webhook in ``obj``, by its name; empty where there is none that can be read."""
    return {name: _decoded(config.get("caBundle")) for name, config in client_configs(obj).items()}


def _decoded(bundle: object) -> bytes:
    try:
        return b64decode(bundle if isinstance(bundle, str) else "", validate=True)
    except ValueError:
        return b""


def is_ours_alone(obj: Object) -> bool:
    """Whether the configuration exists only because webhooks were served under a url and it was missing."""
    return bool(_original(obj).get(_CREATED))


def created(obj: Object) -> Object:
    """The configuration, marked as :func:`is_ours_alone`."""
    marked = copy.deepcopy(obj)
    marked["metadata"].setdefault("annotations", {})[ORIGINAL] = orjson.dumps({_CREATED: True}).decode()
    return marked


def _original(obj: Object) -> dict[str, Any]:
    try:
        value = orjson.loads(annotations_of(obj).get(ORIGINAL) or "{}")
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def revised(obj: Object, *, bundle: bytes | None, url: WebhookURL | None, paths: Mapping[str, str]) -> Object:
    """``obj`` as it should be; equal to it when nothing is to be done.

    ``bundle`` (PEM) is put into every webhook (``None``: that is somebody else's business). With ``url`` every webhook
    leads there, to its path in ``paths`` (by the webhook's name) or its present one; without, what led to some url of
    ours before leads where it led originally.
    """
    changed = copy.deepcopy(obj)
    original = _original(changed)
    former: dict[str, Any] = dict(original.get("clientConfigs") or {})
    configs = client_configs(changed)
    for name, config in configs.items():
        if url is not None:
            target = f"{url}{paths.get(name) or _path(former.get(name) or config, name)}"
            if config.get("url") != target:
                if not original.get(_CREATED):
                    former.setdefault(name, dict(config))
                _replace(config, {"url": target, **_bundle_of(config)})
        elif name in former:
            _replace(config, former[name])
        if bundle is not None:
            config["caBundle"] = b64encode(bundle).decode()
    annotations = dict(annotations_of(changed))
    if url is None:
        annotations.pop(ORIGINAL, None)
    elif former:
        kept = {name: former[name] for name in sorted(former) if name in configs}
        annotations[ORIGINAL] = orjson.dumps({**original, "clientConfigs": kept}, option=orjson.OPT_SORT_KEYS).decode()
    if annotations != annotations_of(changed):
        changed["metadata"]["annotations"] = annotations
    return changed


def _path(config: Mapping[str, Any], name: str) -> str:
    service = config.get("service")
    if service is not None:
        return service.get("path") or ("/" if name != _CONVERSION else CONVERSION_PATH)
    _, _, rest = str(config.get("url") or "").partition("://")
    _, slash, path = rest.partition("/")
    return f"{slash}{path}" or "/"


def _bundle_of(config: Mapping[str, Any]) -> dict[str, Any]:
    return {"caBundle": config["caBundle"]} if config.get("caBundle") else {}


def _replace(config: dict[str, Any], other: Mapping[str, Any]) -> None:
    config.clear()
    config.update(other)


def merge_patch(before: Object, after: Object) -> Object:
    """The JSON merge patch that makes ``after`` of ``before``, if that is still as it was (by its resourceVersion)."""
    metadata: dict[str, Any] = {"resourceVersion": resource_version_of(before)}
    old, new = annotations_of(before), annotations_of(after)
    if old != new:
        metadata["annotations"] = {key: new.get(key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    patch: Object = {"metadata": metadata}
    if after.get("kind") == "CustomResourceDefinition":
        (was,), (config,) = client_configs(before).values(), client_configs(after).values()
        gone = dict.fromkeys(was.keys() - config.keys())
        patch["spec"] = {"conversion": {"webhook": {"clientConfig": {**config, **gone}}}}
    else:
        patch["webhooks"] = after["webhooks"]
    return patch
