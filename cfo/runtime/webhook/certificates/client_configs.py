"""The ``clientConfig`` of webhooks: the address that API servers call, and the CAs that they trust. Pure functions.

They work on the ``clientConfig`` of each webhook in a ``MutatingWebhookConfiguration`` or
``ValidatingWebhookConfiguration``. Everything else (rules, selectors, policies) stays unchanged.

While webhooks are served outside the cluster, these objects contain URLs, and the annotation
:data:`ORIGINAL_ANNOTATION` contains the previous values. The annotation exists exactly as long as the URLs, so a
process that finds it and does not serve a URL restores the previous values.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

import orjson

from cfo.runtime.objects.unstructured import Object, annotations_of, copied, resource_version_of
from cfo.runtime.webhook.options import WebhookURL

ORIGINAL_ANNOTATION: Final = "webhooks.codeflare.dev/original-client-configs"
"""The annotation with the ``clientConfig`` that each webhook had before it was replaced by our URL."""

_CREATED: Final = "created"


def client_configs(obj: Object) -> dict[str, dict[str, Any]]:
    """Return the ``clientConfig`` of each webhook in ``obj`` (not a copy), by the webhook's name."""
    webhooks = obj.get("webhooks") or ()
    return {hook["name"]: hook.setdefault("clientConfig", {}) for hook in webhooks}


def ca_bundles_of(obj: Object) -> dict[str, bytes]:
    """Return the CA bundle (PEM) of each webhook in ``obj``, by name; empty bytes if it is missing or not base64."""
    return {name: _decoded(config.get("caBundle")) for name, config in client_configs(obj).items()}


def _decoded(bundle: object) -> bytes:
    if not isinstance(bundle, str):
        return b""
    try:
        return b64decode(bundle, validate=True)
    except ValueError:
        return b""


def was_created_for_url(obj: Object) -> bool:
    """Return whether the configuration was created only because webhooks were served at a URL and it was missing."""
    return bool(_original(obj).get(_CREATED))


def mark_created_for_url(obj: Object) -> Object:
    """Return a copy of the configuration for which :func:`was_created_for_url` is true."""
    marked = copied(obj)
    annotations = marked["metadata"].setdefault("annotations", {})
    annotations[ORIGINAL_ANNOTATION] = orjson.dumps({_CREATED: True}).decode()
    return marked


def _original(obj: Object) -> dict[str, Any]:
    try:
        value = orjson.loads(annotations_of(obj).get(ORIGINAL_ANNOTATION) or "{}")
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def desired_object(
    obj: Object,
    *,
    bundle: bytes | None,
    url: WebhookURL | None,
    paths: Mapping[str, str],
    annotations: Mapping[str, str | None] | None = None,
) -> Object:
    """Return a copy of ``obj`` with the client configs that it should have; equal to ``obj`` if nothing has to change.

    ``bundle`` (PEM) is set as the CA bundle of every webhook; with ``None``, which means that another tool manages the
    bundles, they stay unchanged. With ``url``, every webhook gets this URL, with its path in ``paths`` (by the
    webhook's name) or else its current path. Without ``url``, the original client config of every webhook that had a
    URL of ours is restored. ``annotations`` are set as well, or removed if their value is ``None``.
    """
    changed = copied(obj)
    original = _original(changed)
    replaced: dict[str, Any] = dict(original.get("clientConfigs") or {})
    configs = client_configs(changed)
    for name, config in configs.items():
        if url is not None:
            path = paths.get(name) or _path(replaced.get(name) or config)
            target = f"{url}{path}"
            if config.get("url") != target:
                if not original.get(_CREATED):
                    replaced.setdefault(name, dict(config))
                _replace(config, {"url": target, **_bundle_of(config)})
        elif name in replaced:
            _replace(config, replaced[name])
        if bundle is not None:
            config["caBundle"] = b64encode(bundle).decode()
    wanted = dict(annotations_of(changed))
    for key, text in (annotations or {}).items():
        if text is None:
            wanted.pop(key, None)
        else:
            wanted[key] = text
    if url is None:
        wanted.pop(ORIGINAL_ANNOTATION, None)
    elif replaced:
        kept = {name: replaced[name] for name in sorted(replaced) if name in configs}
        value = {**original, "clientConfigs": kept}
        encoded = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        wanted[ORIGINAL_ANNOTATION] = encoded.decode()
    if wanted != annotations_of(changed):
        changed["metadata"]["annotations"] = wanted
    return changed


def _path(config: Mapping[str, Any]) -> str:
    service = config.get("service")
    if service is not None:
        return service.get("path") or "/"
    _, _, rest = str(config.get("url") or "").partition("://")
    _, slash, path = rest.partition("/")
    return f"{slash}{path}" or "/"


def _bundle_of(config: Mapping[str, Any]) -> dict[str, Any]:
    return {"caBundle": config["caBundle"]} if config.get("caBundle") else {}


def _replace(config: dict[str, Any], other: Mapping[str, Any]) -> None:
    config.clear()
    config.update(other)


def merge_patch(before: Object, after: Object) -> Object:
    """Return the JSON merge patch from ``before`` to ``after``.

    It contains the resourceVersion of ``before``, so it fails with a conflict if the object has changed since.
    """
    metadata: dict[str, Any] = {"resourceVersion": resource_version_of(before)}
    old = annotations_of(before)
    new = annotations_of(after)
    if old != new:
        metadata["annotations"] = {
            key: new.get(key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)
        }
    return {"metadata": metadata, "webhooks": after["webhooks"]}
