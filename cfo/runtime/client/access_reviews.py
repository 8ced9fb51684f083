"""Asks the API server who is allowed to do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfo.runtime.client.client import Client


async def is_allowed(client: Client, **spec: Any) -> bool:
    """Return the answer to a SubjectAccessReview with ``spec``; without ``user``, about the user of ``client``."""
    kind = "SubjectAccessReview" if "user" in spec else "SelfSubjectAccessReview"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    response = await client.create(review)
    status = response.get("status") or {}
    return bool(status.get("allowed"))


def service_account(namespace: str, name: str) -> dict[str, Any]:
    """Return the user of a service account and its groups, as fields of a review."""
    groups = [
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    ]
    return {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
