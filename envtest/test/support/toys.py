"""A minimal CRD that several test modules install."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TOYS: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "toys.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


def toys_crd(*versions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CRD with other versions."""
    return {**TOYS, "spec": {**TOYS["spec"], "versions": list(versions)}}
