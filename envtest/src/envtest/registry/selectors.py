"""Selectors of list, watch and deletecollection: label and field selectors combined, applied to records.

Field selectors are parsed with the error messages of ``k8s.io/apimachinery/pkg/fields`` and limited to the selectable
fields of the kind.
"""

from __future__ import annotations

from typing import Any

from envtest.apimachinery.errors import GroupResource, bad_request
from envtest.apimachinery.label_selectors import LabelSelector, parse_labels
from envtest.registry.resource import ResourceInfo
from envtest.registry.shard_selectors import ShardSelector
from envtest.storage import Record

__all__ = ["Selector", "parse_fields", "selector_for"]


def parse_fields(text: str) -> list[tuple[str, str, str]]:
    """Parse a field selector into (field, operator, value) terms, operator ``=`` or ``!=``.

    Raises StatusError (400).
    """
    terms: list[tuple[str, str, str]] = []
    for term in _split_terms(text):
        if not term:
            continue
        found = _split_term(term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        field, operator, value = found
        terms.append((field, "!=" if operator == "!=" else "=", _unescape(value)))
    return terms


def _split_terms(text: str) -> list[str]:
    terms = []
    start = 0
    escaped = False
    for position, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            terms.append(text[start:position])
            start = position + 1
    terms.append(text[start:])
    return terms


def _split_term(term: str) -> tuple[str, str, str] | None:
    for position in range(len(term)):
        for operator in ("!=", "==", "="):
            if term.startswith(operator, position):
                return term[:position], operator, term[position + len(operator) :]
    return None


def _unescape(value: str) -> str:
    out: list[str] = []
    escaped = False
    for character in value:
        if escaped:
            if character not in "\\,=":
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{character}")
            out.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in ",=":
            raise bad_request(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        else:
            out.append(character)
    if escaped:
        raise bad_request("invalid field selector: invalid escape sequence: \\")
    return "".join(out)


_ONLY_NAMES = frozenset(
    {
        GroupResource("", "namespaces"),
        GroupResource("", "nodes"),
        GroupResource("certificates.k8s.io", "certificatesigningrequests"),
        GroupResource("resource.k8s.io", "resourceslices"),
    }
)
"""The cluster-scoped kinds whose field selectors cannot name a namespace; those of all others can."""
_SLICES = GroupResource("resource.k8s.io", "resourceslices")
_NEW_EVENTS = GroupResource("events.k8s.io", "events")
_JOBS = GroupResource("batch", "jobs")
_META = ("metadata.name", "metadata.namespace")
_DEFAULTS = {
    "spec.unschedulable": "false",
    "spec.hostNetwork": "false",
    "status.succeeded": "0",
    "status.replicas": "0",
}


def _value_at(obj: Any, path: str) -> str:
    value = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return _DEFAULTS.get(path, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _event_source(obj: Any) -> str:
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


class Selector:
    """A label selector, a field selector and a selector of shards, applied to records."""

    __slots__ = ("_decoded", "_fields", "_labels", "converts", "everything", "shards")

    def __init__(
        self,
        labels: LabelSelector,
        fields: list[tuple[str, str, str]],
        shards: ShardSelector | None = None,
    ) -> None:
        self.shards = shards
        self._labels = labels
        self._fields = [term for term in fields if term[0] in _META]
        self._decoded = [term for term in fields if term[0] not in _META]
        self.everything = labels.empty and not fields and shards is None
        self.converts: ResourceInfo | None = None
        """The version whose objects are selected, if a webhook converts stored objects to it."""

    def names_one_object(self, *, in_all_namespaces: bool) -> bool:
        """Return whether a field selector names the only object that can match, and its namespace if that is open."""
        exact = {field for field, operator, _ in self._fields if operator == "="}
        return "metadata.name" in exact and (not in_all_namespaces or "metadata.namespace" in exact)

    def matches(self, record: Record) -> bool:
        """Return whether the record is selected; decode it only for fields other than its name and namespace."""
        if self.shards is not None and not self.shards.matches(record):
            return False
        if not self._labels.empty and not self._labels.matches(record.labels):
            return False
        for field, operator, value in self._fields:
            actual = record.name if field == "metadata.name" else record.namespace
            if (actual == value) != (operator == "="):
                return False
        if self._decoded:
            obj = record.obj()
            for field, operator, value in self._decoded:
                actual = _event_source(obj) if field == "source" else _value_at(obj, field)
                if (actual == value) != (operator == "="):
                    return False
        return True


EVERYTHING = Selector(LabelSelector([]), [])


def selector_for(
    info: ResourceInfo, labels: str, fields: str, shards: ShardSelector | None = None
) -> Selector:
    """Return the selector of a request for ``info``. Raises StatusError (400)."""
    if not labels and not fields:
        return Selector(LabelSelector([]), [], shards) if shards is not None else EVERYTHING
    required_labels = parse_labels(labels)
    terms = parse_fields(fields) if fields else []
    own = tuple(path.removeprefix(".") for path in info.selectable_fields)
    aliases = {}
    has_no_namespace = info.resource in _ONLY_NAMES or (info.is_crd and not info.namespaced)
    metadata = _META[:1] if has_no_namespace else _META
    for field, _, _ in terms:
        if field not in metadata and field not in own:
            if info.resource == _JOBS:
                raise bad_request(f'field label "{field}" not supported for Job')
            if info.resource == _SLICES:
                kind = f"{info.api_version}, Kind={info.kind}"
                raise bad_request(f"field label not supported for {kind}: {field}")
            if info.is_crd or own:
                raise bad_request(f"field label not supported: {field}")
            raise bad_request(
                f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
            )
    if info.resource == _NEW_EVENTS:  # stored as core/v1 Events
        aliases = {field: field.replace("regarding.", "involvedObject.") for field in own}
        aliases["reportingController"] = "reportingComponent"
    if info.resource == _JOBS:
        aliases = {"status.successful": "status.succeeded"}
    named = [(aliases.get(field, field), operator, value) for field, operator, value in terms]
    selector = Selector(required_labels, named, shards)
    has_fields = any(field not in _META for field, _, _ in named)
    has_labels = not required_labels.empty and not selector.names_one_object(
        in_all_namespaces=False
    )
    if info.converts_by_webhook and (has_fields or has_labels):
        selector.converts = info
    return selector
