"""Decodes the reviews that webhooks return, by the types of kube-apiserver and with the messages of its decoder."""

from __future__ import annotations

from typing import Any, Final

from envtest.apimachinery.objects import Object
from envtest.builtins.normalization import decode
from envtest.builtins.review_types import review_type
from envtest.endpoints.decoder import (
    JSONError,
    load_json,
    load_yaml,
    unparsable_identity,
    whole_object_problem,
)

__all__ = ["decode_review", "shown_kind"]

_SCHEME: Final = "k8s.io/apiserver/pkg/util/webhook/client.go:71"


def decode_review(body: bytes, group: str, version: str, kind: str) -> Object:
    """Return a review as a webhook returned it, JSON or YAML, without unknown fields.

    Its ``apiVersion`` and kind can be missing. Raises ValueError if it is another kind, or a value has a wrong type.
    """
    document = _load(body)
    problem = whole_object_problem(document) or unparsable_identity(document)
    if problem:
        raise ValueError(problem)
    found_version = document.get("apiVersion") or ""
    found_kind = document.get("kind") or ""
    found = (found_version or f"{group}/{version}", found_kind or kind)
    if found not in {(f"{group}/v1", kind), (f"{group}/v1beta1", kind)}:
        raise ValueError(
            f'no kind "{found[1]}" is registered for version "{found[0]}" in scheme "{_SCHEME}"'
        )
    if found[0] != f"{group}/{version}":
        other = found[0].rpartition("/")[2]
        raise ValueError(f"converting ({other}.{kind}) to ({version}.{kind}): unknown conversion")
    review: Object = decode(review_type(version, kind), document)[0]
    return {**review, "apiVersion": found_version, "kind": found_kind}


def shown_kind(review: Object) -> str:
    """Return the version and the kind of a review as messages of Go show them."""
    group, _, version = review["apiVersion"].rpartition("/")
    return f"{group}/{version}, Kind={review['kind']}"


def _load(body: bytes) -> Any:
    """Return the document; an empty one means all defaults."""
    try:
        document = load_json(body, exact=True) if body.lstrip()[:1] == b"{" else load_yaml(body)
    except JSONError as error:
        message = f"couldn't get version/kind; json parse error: {error}"
        raise ValueError(message) from error
    return {} if document is None else document
