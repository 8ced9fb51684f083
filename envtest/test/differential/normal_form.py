"""What must differ between two servers, replaced by words: uids, versions, times, generated names and addresses."""

from __future__ import annotations

import re
from typing import Any

import yaml

__all__ = ["Normalizer"]

_UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b20(?:2[6-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(?P<fraction>\.\d+)?Z")
_GENERATED = re.compile(r"\bgen-[b-df-hj-np-tv-z2-9]{5}\b")
_AGE = re.compile(r"^(?:<unknown>|<invalid>|\d+(?:s|m|h|d|y)(?:\d+(?:s|m|h|d))?)$")
_TOKEN = re.compile(r"^ey[\w-]+\.[\w-]+\.[\w-]+$")
_ALLOCATED_ADDRESS = re.compile(r"\b10\.0\.0\.\d+\b")
_YAML_TOKEN = re.compile(r"^(  continue: )[\w-]{8,}$", re.MULTILINE)
"""The token of a list in YAML, which contains a version of the store."""
_DECODER = re.compile(
    r"(json: cannot unmarshal |json parse error: |error decoding |yaml: |invalid character|unexpected end of JSON).*"
)
"""Decoder errors, whose words are those of a Go library."""
_GO_VALUE = re.compile(
    r'(Invalid value: |Required value: |Unsupported value: )(?:"?(?:\{|map\[|\[\{|&).*?[}\]]"?): (?=[a-z`])'
)
"""Go structs in error messages, with the names of internal types."""
_GO_DIFF = re.compile(
    r"(forbidden: (?:pod updates may not|updates to \w+ spec for)[^\n]*)\n.*",
    re.DOTALL | re.IGNORECASE,
)
_STRUCT_DIFF = re.compile(
    r"((?:may not change fields other than|is immutable after creation)[^\n@]*)(?:\n|@@).*",
    re.DOTALL,
)
_SOURCE = re.compile(r'in scheme "[^"]*"')
"""The file of a scheme, whose path depends on how the server was built."""
_VERSION_TEXT = re.compile(
    r"(?i)(resource ?version[^,\d]{0,20}: |current: ?|precondition \(|in record \()\"?\d+\"?"
)


_OPENSHIFT_ROLES = (
    "system:openshift:public-info-viewer",
    "system:controller:service-ca-cert-publisher",
)
_OPENSHIFT_PATH = "/.well-known"
"""Roles that kube-apiserver has only if it was built from the sources of OpenShift, and a path of the first one."""


LIST_VERSION = "LIST"


class Normalizer:
    """Replaces the values of one server in one sequence; equal values get equal words."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, str], str] = {}

    def body(self, value: Any) -> Any:
        """Return the normal form of a response body."""
        if isinstance(value, dict):
            return self._map(value)
        if isinstance(value, list):
            return [self.body(item) for item in value]
        if isinstance(value, str) and "\nkind: SelfSubjectRulesReview\n" in value:
            return self.body(yaml.safe_load(value))  # its rules are in a random order, as in JSON
        if isinstance(value, str):
            return self._text(value)
        return value

    def _word(self, kind: str, value: str) -> str:
        if (kind, value) not in self._words:
            number = 1 + sum(known == kind for known, _ in self._words)
            self._words[kind, value] = f"{kind}#{number}"
        return self._words[kind, value]

    def _map(self, value: dict[str, Any]) -> dict[str, Any]:
        metadata = value.get("metadata")
        if _has_store_version(value) and isinstance(metadata, dict):
            value = {**value, "metadata": {**metadata, "resourceVersion": LIST_VERSION}}
        normal: dict[str, Any] = {}
        for key, child in sorted(value.items()):  # words are numbered in this order
            normal[self._text(key)] = self._field(key, child)
        if value.get("kind") == "Status":
            _sort_causes(normal)
        return normal

    def _field(self, key: str, child: Any) -> Any:
        if isinstance(child, str) and child:
            if key == "resourceVersion" and child != LIST_VERSION:
                return self._word("VERSION", child)
            if key in ("continue", "storageVersionHash", "hash"):
                return key.upper()
        if key == "nodePort" and isinstance(child, int) and child >= 30000:
            return "NODEPORT"
        if key == "managedFields" and isinstance(child, list):
            entries = [self.body(entry) for entry in child]
            return sorted(entries, key=_manager)
        if key == "cells" and isinstance(child, list):
            return [_cell(self.body(cell)) for cell in child]
        if key == "resourceRules" and isinstance(child, list):
            return sorted(child, key=str)  # kube-apiserver finds the bindings in a random order
        if key == "nonResourceRules" and isinstance(child, list):
            known = [rule for rule in child if _OPENSHIFT_PATH not in rule["nonResourceURLs"]]
            return sorted(known, key=str)
        if key == "items" and isinstance(child, list):
            return self.body([item for item in child if not _is_of_openshift(item)])
        if key == "columnDefinitions" and isinstance(child, list):
            return [{**column, "description": "TEXT"} for column in child]
        return self.body(child)

    def _text(self, text: str) -> str:
        text = _UID.sub(lambda found: self._word("UID", found.group()), text)
        text = _TIME.sub(lambda found: _time(found), text)
        text = _GENERATED.sub(lambda found: self._word("NAME", found.group()), text)
        text = _ALLOCATED_ADDRESS.sub("ADDRESS", text)
        text = _VERSION_TEXT.sub(r"\1NUMBER", text)
        text = _TOKEN.sub("TOKEN", text)
        text = _YAML_TOKEN.sub(r"\1CONTINUE", text)
        text = _DECODER.sub(r"\1...", text)
        text = _SOURCE.sub("in scheme FILE", text)
        text = _GO_VALUE.sub(r"\1...: ", text)
        text = _GO_DIFF.sub(r"\1", text)
        return _STRUCT_DIFF.sub(r"\1", text)


def _has_store_version(value: dict[str, Any]) -> bool:
    """Return whether an object has the version of the whole store: a list, or the bookmark after initial events."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
        return False
    is_list = "items" in value or value.get("kind") == "Table"
    return is_list or "k8s.io/initial-events-end" in (metadata.get("annotations") or {})


def _is_of_openshift(item: Any) -> bool:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return isinstance(metadata, dict) and metadata.get("name") in _OPENSHIFT_ROLES


def _time(found: re.Match[str]) -> str:
    if found.group().startswith("2026-01-02T03:04:0"):
        return found.group()
    return "TIME" if found["fraction"] is None else f"TIME.{len(found['fraction']) - 1}"


def _cell(value: Any) -> Any:
    return "AGE" if isinstance(value, str) and _AGE.match(value) else value


def _manager(entry: Any) -> tuple[str, ...]:
    if not isinstance(entry, dict):
        return ()
    return tuple(
        str(entry.get(key)) for key in ("manager", "operation", "subresource", "apiVersion")
    )


def _sort_causes(status: dict[str, Any]) -> None:
    """Sort the causes and the list in the message: kube-apiserver validates some maps in a random order."""
    details = status.get("details")
    if isinstance(status.get("message"), str):
        status["message"] = _without_skipped_errors(status["message"])
        head, errors, rest = status["message"].partition("errors:\n")
        status["message"] = head + errors + "\n".join(sorted(rest.split("\n")))
    causes = details.get("causes") if isinstance(details, dict) else None
    message = status.get("message")
    if not isinstance(causes, list) or len(causes) < 2 or not isinstance(message, str):
        return
    causes.sort(key=str)
    head, bracket, _ = message.partition("[")
    parts = [f"{cause.get('field')}: {cause.get('message')}" for cause in causes]
    if bracket and all(part in message for part in parts):
        status["message"] = f"{head}[{', '.join(dict.fromkeys(parts))}]"


_UNDECLARED = re.compile(r"(?P<parent>\S*)\.[^.\s]+: field not declared in schema$")


def _without_skipped_errors(message: str) -> str:
    """Return a message about a body that does not fit its schema, without errors that only chance reports.

    kube-apiserver visits the fields of an object in a random order, and stops at one that its schema does not declare.
    That field's name is left out, and so are errors in the object's other fields.
    """
    head, several, rest = message.partition("errors:\n")
    if several:
        lines = [line.strip() for line in rest.split("\n")]
    elif ": ." in message:
        head, _, error = message.partition(": .")
        head += ": "
        lines = [f".{error}"]
    else:
        return message
    found = [match for match in map(_UNDECLARED.fullmatch, lines) if match]
    parents = sorted({match["parent"] for match in found})
    if not parents:
        return message
    parents = [
        parent
        for parent in parents
        if not any(parent.startswith((f"{other}.", f"{other}[")) for other in parents)
    ]
    kept = [
        line for line in lines if not line.startswith(tuple(f"{parent}." for parent in parents))
    ]
    kept += [f"{parent}.FIELD: field not declared in schema" for parent in parents]
    return head + "errors:\n" + "\n".join(kept)
