"""Content negotiation: the form of a response, from ``Accept``, by the rules of apiserver's negotiation.

Resources are served as JSON, YAML and protobuf (not custom resources), in full, as a Table (not in protobuf) or as
PartialObjectMetadata. Clients that prefer protobuf but also accept JSON get whole objects as JSON, which is stored and
costs nothing to encode; kube-apiserver would send protobuf.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from envtest.apimachinery.errors import not_acceptable, not_acceptable_here

__all__ = [
    "PROTOBUF",
    "SERVED",
    "TRANSFORMED",
    "Output",
    "check_route",
    "negotiate",
    "streamed",
]

PROTOBUF = "application/vnd.kubernetes.protobuf"
SERVED = ("application/json", "application/yaml", PROTOBUF)
STREAMED = ("application/json;stream=watch", f"{PROTOBUF};stream=watch")
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
    protobuf: bool = False

    @property
    def is_stored_form(self) -> bool:
        """Whether the response contains the objects as they are stored."""
        return not (self.yaml or self.as_kind or self.pretty or self.protobuf)

    @property
    def content_type(self) -> str:
        """The Content-Type of the response."""
        if self.protobuf:
            return PROTOBUF
        return "application/yaml" if self.yaml else "application/json"


class _Clause(NamedTuple):
    media: str
    quality: float
    parameters: dict[str, str]


def _parse(accept: str) -> list[_Clause]:
    clauses = []
    for part in accept.split(","):
        media, *rest = [piece.strip() for piece in part.split(";")]
        parameters = dict(piece.split("=", 1) for piece in rest if "=" in piece)
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        clauses.append(_Clause(media, quality, parameters))
    clauses.sort(key=lambda clause: -clause.quality)
    return clauses


_JSON = frozenset({"*/*", "application/*", "application/json"})


def _accepts_json(clauses: list[_Clause], quality: float) -> bool:
    return any(
        each.media in _JSON and each.quality >= quality and "as" not in each.parameters
        for each in clauses
    )


@lru_cache(maxsize=256)
def check_route(accept: str, *, on_collection: bool) -> None:
    """Raise the StatusError (406) of a route of a built-in resource that serves no media type in ``accept``."""
    clauses = _parse(accept) if accept else []
    if clauses and not any(clause.media in {"*/*", *SERVED} for clause in clauses):
        raise not_acceptable_here((*SERVED, *STREAMED) if on_collection else SERVED)


def streamed(output: Output) -> Output:
    """Return the form of a watch, which cannot be YAML. Raises StatusError (406)."""
    if output.yaml:
        raise not_acceptable("only the following media types are accepted: " + ", ".join(STREAMED))
    return output


@lru_cache(maxsize=256)
def negotiate(accept: str, is_crd: bool, kinds: frozenset[str] = TRANSFORMED) -> Output:
    """Return the form of a response. Raises StatusError (406).

    ``kinds`` are the kinds into which the objects can be transformed.
    """
    clauses = _parse(accept) if accept else [_Clause("*/*", 1.0, {})]
    for clause in clauses:
        protobuf = clause.media == PROTOBUF
        if clause.media not in {*_JSON, "application/yaml"} and not protobuf:
            continue
        yaml = clause.media == "application/yaml"
        wanted = clause.parameters.get("as", "")
        if not wanted:
            if protobuf and is_crd:
                continue
            return Output(yaml, protobuf=protobuf and not _accepts_json(clauses, clause.quality))
        known = clause.parameters.get("g") == "meta.k8s.io" and clause.parameters.get(
            "v"
        ) in _AS.get(wanted, ())
        if known and wanted in kinds and not (protobuf and wanted == "Table"):
            return Output(yaml, wanted, clause.parameters["v"], protobuf=protobuf)
    raise not_acceptable("only the following media types are accepted: " + ", ".join(SERVED))
