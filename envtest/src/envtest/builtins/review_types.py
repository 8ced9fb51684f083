"""The types of the reviews that kube-apiserver exchanges with webhooks, which are not part of its OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["PACKAGES", "review_type"]

_REF: Final = "#/components/schemas/"
_STRING: Final = {"type": "string"}
_ANY: Final[Mapping[str, Any]] = {}


def review_type(version: str, kind: str) -> str:
    """Return the name of the type of a review in ``v1`` or ``v1beta1``."""
    return f"io.k8s.reviews.{version}.{kind}"


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REF + name}


def _struct(**fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def _types(version: str) -> dict[str, Any]:
    status = _ref("io.k8s.apimachinery.pkg.apis.meta.v1.Status")

    def review(name: str) -> dict[str, Any]:
        request = _ref(review_type(version, f"{name}Request"))
        response = _ref(review_type(version, f"{name}Response"))
        return _struct(apiVersion=_STRING, kind=_STRING, request=request, response=response)

    return {
        "AdmissionReview": review("Admission"),
        "AdmissionRequest": _struct(uid=_STRING),
        "AdmissionResponse": _struct(
            uid=_STRING,
            allowed={"type": "boolean"},
            status=status,
            patch={"type": "string", "format": "byte"},
            patchType=_STRING,
            auditAnnotations={"type": "object", "additionalProperties": _STRING},
            warnings={"type": "array", "items": _STRING},
        ),
        "ConversionReview": review("Conversion"),
        "ConversionRequest": _struct(uid=_STRING),
        "ConversionResponse": _struct(
            uid=_STRING,
            convertedObjects={"type": "array", "items": _ANY},
            result=status,
        ),
    }


PACKAGES: Final = {f"io.k8s.reviews.{version}": _types(version) for version in ("v1", "v1beta1")}
"""The schemas of the types, by package and name."""
