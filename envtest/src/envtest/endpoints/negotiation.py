"""Content negotiation: the form of a response, from ``Accept``, by the rules of apiserver's negotiation.

Resources are served as JSON and YAML, in full, as a Table or as PartialObjectMetadata. As in kube-apiserver, error
messages list protobuf as supported; it is never selected, because all clients that accept it also accept JSON.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from envtest.apimachinery.errors import not_acceptable, not_acceptable_here

__all__ = ["SERVED", "TRANSFORMED", "Output", "negotiate"]

SERVED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_AS = {
    "Table": frozenset({"v1", "v1beta1"}),
    "PartialObjectMetadata": frozenset({"v1", "v1beta1"}),
    "PartialObjectMetadataList": frozenset({"v1", "v1beta1"}),
}

TRANSFORMED = frozenset(_AS)
"""The kinds into which the objects of most resources can be transformed."""


class Output(NamedTuple):
    """The negotiated form: ``as_kind`` is empty for the object itself, ``as_version`` is the version of ``as_kind``."""

    yaml: bool = False
    as_kind: str = ""
    as_version: str = ""
    pretty: bool = False

    @property
    def content_type(self) -> str:
        """The Content-Type of the response."""
        return "application/yaml" if self.yaml else "application/json"


class _Clause(NamedTuple):
    media: str
    quality: float
    parameters: dict[str, str]


def _parse(accept: str) -> list[_Clause]:
    clauses = []
    for part in accept.split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        parameters = dict(piece.split("=", 1) for piece in rest if "=" in piece)
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        clauses.append(_Clause(media, quality, parameters))
    clauses.sort(key=lambda clause: -clause.quality)
    return clauses


@lru_cache(maxsize=256)
def negotiate(accept: str, is_crd: bool, kinds: frozenset[str] = TRANSFORMED) -> Output:
    """Return the form of a response. Raises StatusError (406).

    For built-in resources the route rejects unknown media types, for custom resources the negotiation itself, with
    another message. ``kinds`` are the kinds into which the objects can be transformed.
    """
    clauses = _parse(accept) if accept else [_Clause("*/*", 1.0, {})]
    if not is_crd and not any(clause.media in {"*/*", *SERVED} for clause in clauses):
        raise not_acceptable_here()
    for clause in clauses:
        if clause.media not in {"*/*", "application/*", "application/json", "application/yaml"}:
            continue
        yaml = clause.media == "application/yaml"
        wanted = clause.parameters.get("as", "")
        if not wanted:
            return Output(yaml)
        known = clause.parameters.get("g") == "meta.k8s.io" and clause.parameters.get("v") in _AS.get(wanted, ())
        if known and wanted in kinds:
            return Output(yaml, wanted, clause.parameters["v"])
    raise not_acceptable("only the following media types are accepted: " + ", ".join(SERVED))
