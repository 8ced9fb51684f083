"""Request bodies and query parameters that the client derives from its arguments."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import orjson

from cfo.runtime.objects.errors import TerminalError
from cfo.runtime.objects.unstructured import Object, gvk_of, key_of, namespace_of, owner_reference, owner_references_of

__all__ = [
    "EncodingError",
    "delete_options",
    "encode_body",
    "encode_string_data",
    "selector_params",
    "set_controller_owner",
]


class EncodingError(TerminalError, ValueError):
    """Raised for an object that cannot be written as JSON: it is nested too deeply (over 254 levels), or not JSON.

    A retry cannot help, so a reconcile that raises it is logged once, and repeated only when something changes.
    """


def encode_body(body: Any, verb: str, resource: str) -> bytes:
    """Return the JSON of the object or patch. Raises :class:`EncodingError` with the verb and the resource."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as error:
        raise EncodingError(f"cannot encode the object for {verb} of {resource}: {error}") from error


def selector_params(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters for the selectors that are not empty."""
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in selectors.items() if value}


def delete_options(options: Mapping[str, Any]) -> bytes | None:
    """Return a DeleteOptions body with the options that are not ``None``, or ``None`` if there are none."""
    given = {name: value for name, value in options.items() if value is not None}
    return orjson.dumps({"apiVersion": "v1", "kind": "DeleteOptions", **given}) if given else None


def encode_string_data(obj: Object) -> Object:
    """Return a Secret with its ``stringData`` encoded into ``data``, and any other object unchanged."""
    strings = obj.get("stringData")
    if not strings or obj.get("kind") != "Secret" or obj.get("apiVersion") != "v1":
        return obj
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in strings.items()}
    rest = {name: value for name, value in obj.items() if name != "stringData"}
    return {**rest, "data": {**(obj.get("data") or {}), **encoded}}


def set_controller_owner(obj: Object, owner: Object, *, block_owner_deletion: bool | None = None) -> Object:
    """Return a copy of the object with ``owner`` as its controller.

    Raises :class:`ValueError` if ``owner`` is in another namespace.
    """
    if namespace_of(owner) and namespace_of(owner) != namespace_of(obj):
        raise ValueError(
            f"{gvk_of(obj)} {key_of(obj)}: its owner {key_of(owner)} is in another namespace; "
            "the garbage collector would delete it"
        )
    reference = owner_reference(owner, block_owner_deletion=block_owner_deletion)
    others = [other for other in owner_references_of(obj) if other.get("uid") != reference["uid"]]
    return {**obj, "metadata": {**(obj.get("metadata") or {}), "ownerReferences": [*others, reference]}}
