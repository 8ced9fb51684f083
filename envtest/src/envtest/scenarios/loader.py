"""Reads scenarios from YAML or JSON files and mappings. docs/nodes.md describes all fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from envtest.apimachinery.name_rules import annotation_errors, dns_subdomain, label_errors
from envtest.formats.bounded_file import read_file
from envtest.scenarios.fields import Fields, ScenarioError
from envtest.simulation.model import (
    DEFAULT_CAPACITY,
    Behavior,
    CommandAnswer,
    Eviction,
    ImageProblem,
    LogLine,
    Match,
    NodeFailure,
    NodeTemplate,
    PodRule,
    Run,
)

__all__ = ["MATCH_FIELDS", "NODE_FIELDS", "POD_FIELDS", "load_document", "read_nodes", "read_rules"]

NODE_FIELDS: Final = (
    "name",
    "count",
    "labels",
    "annotations",
    "taints",
    "unschedulable",
    "capacity",
    "allocatable",
    "failures",
)
POD_FIELDS: Final = (
    "match",
    "startAfter",
    "ready",
    "readyAfter",
    "stopAfter",
    "image",
    "containers",
    "evict",
    "exec",
    "attach",
    "logs",
    "previousLogs",
    "ports",
)
MATCH_FIELDS: Final = ("labels", "namespace", "name", "owner", "node", "start")
_RUN: Final = ("after", "exitCode", "reason", "message")
_ANSWER: Final = ("command", "container", "stdout", "stderr", "exitCode", "echo", "after")
_TAINT: Final = ("key", "value", "effect")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_IMAGE_REASONS: Final = (
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
)
_MAX_NODES: Final = 5000
_OOM_KILLED: Final = 137


def load_document(source: Path | str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document of a file, or a mapping as it is. Raises ScenarioError, which names the file, and OSError."""
    if isinstance(source, Mapping):
        return source
    from envtest.formats.yaml_codec import YAMLError, load

    try:
        document = load(read_file(Path(source)))
    except YAMLError as error:
        raise ScenarioError(f"{source}:{error.line}: {error.problem}") from None
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise ScenarioError(f"{source}: must be a mapping with the fields nodes and pods")
    return document


def read_nodes(document: Fields) -> tuple[NodeTemplate, ...] | None:
    """Return the nodes of a scenario; ``None`` if it does not say which there are. Raises ScenarioError."""
    if not document.has("nodes"):
        return None
    nodes: list[NodeTemplate] = []
    for fields in document.sections("nodes", NODE_FIELDS):
        name = fields.required("name")
        count = fields.integer("count", 0, 1, _MAX_NODES)
        for problem in dns_subdomain(name):
            raise fields.error("name", f"the name of a node: {problem}")
        _check_node(fields)
        names = [f"{name}-{number}" for number in range(1, count + 1)] if count else [name]
        nodes.extend(_node(each, fields) for each in names)
        if len(nodes) > _MAX_NODES:
            raise document.error("nodes", f"at most {_MAX_NODES} nodes")
    counts = Counter(node.name for node in nodes)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise ScenarioError(f"nodes: {repeated[0]}: must be the name of one node only")
    return tuple(nodes)


def _check_node(fields: Fields) -> None:
    """Raise ScenarioError for what the API server would reject in a node, which would then never exist."""
    from envtest.builtins.nodes import taint_errors
    from envtest.builtins.resource_names import quantity_errors

    taints = [_taint(each) for each in fields.sections("taints", _TAINT)]
    errors = [
        *label_errors(fields.labels("labels"), "labels"),
        *annotation_errors(fields.labels("annotations"), "annotations"),
        *taint_errors(taints, "taints"),
    ]
    for part in ("capacity", "allocatable"):
        for name, quantity in fields.quantities(part).items():
            errors += quantity_errors(name, quantity, f"{part}.{name}")
    for error in errors:
        raise ScenarioError(f"{fields.path}.{error}")


def _node(name: str, fields: Fields) -> NodeTemplate:
    capacity = {**DEFAULT_CAPACITY, **fields.quantities("capacity")}
    return NodeTemplate(
        name=name,
        labels=fields.labels("labels"),
        annotations=fields.labels("annotations"),
        taints=tuple(map(_taint, fields.sections("taints", _TAINT))),
        unschedulable=bool(fields.boolean("unschedulable")),
        capacity=capacity,
        allocatable={**capacity, **fields.quantities("allocatable")},
        failures=tuple(map(_failure, fields.sections("failures", ("after", "seconds", "reason")))),
    )


def _taint(fields: Fields) -> dict[str, str]:
    taint = {"key": fields.required("key"), "effect": fields.text("effect", choices=_EFFECTS)}
    if not taint["effect"]:
        raise fields.error("effect", f"one of {', '.join(_EFFECTS)}")
    if fields.has("value"):
        taint["value"] = fields.text("value")
    return taint


def _failure(fields: Fields) -> NodeFailure:
    reason = fields.text("reason", "NotReady", choices=("NotReady", "Lost"))
    return NodeFailure(fields.seconds("after") or 0.0, fields.seconds("seconds"), reason == "Lost")


def read_rules(document: Fields) -> tuple[PodRule, ...]:
    """Return the rules of a scenario. Raises ScenarioError."""
    return tuple(
        PodRule(_match(fields), _behavior(fields))
        for fields in document.sections("pods", POD_FIELDS)
    )


def _match(rule: Fields) -> Match:
    fields = rule.section("match", MATCH_FIELDS)
    owner = fields.section("owner", ("kind", "name"))
    starts = fields.items("start")
    if not all(
        isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in starts
    ):
        raise fields.error("start", "a list of numbers from 1")
    return Match(
        labels=fields.labels("labels"),
        namespace=fields.text("namespace"),
        name=fields.text("name"),
        owner_kind=owner.text("kind"),
        owner_name=owner.text("name"),
        node=fields.text("node"),
        starts=tuple(starts),
    )


def _behavior(rule: Fields) -> Behavior:
    attach = rule.section("attach", _ANSWER) if rule.has("attach") else None
    return Behavior(
        start_after=rule.seconds("startAfter"),
        ready=rule.boolean("ready"),
        ready_after=rule.seconds("readyAfter"),
        stop_after=rule.seconds("stopAfter"),
        image=_image(rule) if rule.has("image") else None,
        runs=_runs(rule) if rule.has("containers") else None,
        evict=_eviction(rule) if rule.has("evict") else None,
        exec=tuple(map(_answer, rule.sections("exec", _ANSWER))) if rule.has("exec") else None,
        attach=_answer(attach) if attach is not None else None,
        logs=_logs(rule, "logs") if rule.has("logs") else None,
        previous_logs=_logs(rule, "previousLogs") if rule.has("previousLogs") else None,
        ports=_ports(rule) if rule.has("ports") else None,
    )


def _image(rule: Fields) -> ImageProblem:
    fields = rule.section("image", ("reason", "message", "seconds", "containers"))
    reason = fields.text("reason", _IMAGE_REASONS[0], choices=_IMAGE_REASONS)
    return ImageProblem(
        reason, fields.text("message"), fields.seconds("seconds"), fields.texts("containers")
    )


def _runs(rule: Fields) -> dict[str, tuple[Run, ...]]:
    names = rule.mapping("containers")
    containers = rule.section("containers", tuple(names))
    return {name: tuple(map(_run, containers.sections(name, _RUN))) or (Run(),) for name in names}


def _run(fields: Fields) -> Run:
    reason = fields.text("reason")
    default_code = _OOM_KILLED if reason == "OOMKilled" else 0
    code = fields.integer("exitCode", default_code, 0, 255)
    ends = any(fields.has(name) for name in ("after", "exitCode", "reason"))
    after = fields.seconds("after")
    duration = (after or 0.0) if ends else None
    return Run(duration, code, reason, fields.text("message"))


def _eviction(rule: Fields) -> Eviction:
    fields = rule.section("evict", ("after", "message"))
    message = fields.text("message", "The node was low on resource: memory.")
    return Eviction(fields.seconds("after") or 0.0, message)


def _answer(fields: Fields) -> CommandAnswer:
    return CommandAnswer(
        command=fields.texts("command"),
        container=fields.text("container"),
        stdout=fields.text("stdout"),
        stderr=fields.text("stderr"),
        exit_code=fields.integer("exitCode", 0, 0, 255),
        echo=bool(fields.boolean("echo")),
        after=fields.seconds("after") or 0.0,
    )


def _logs(rule: Fields, name: str) -> dict[str, tuple[LogLine, ...]]:
    containers = rule.mapping(name)
    fields = rule.section(name, tuple(containers))
    return {container: _lines(fields, container) for container in containers}


def _lines(fields: Fields, name: str) -> tuple[LogLine, ...]:
    lines = []
    for number, each in enumerate(fields.items(name)):
        if isinstance(each, str):
            lines.append(LogLine(0.0, each))
        else:
            line = Fields(each, f"{fields.path}.{name}[{number}]", ("after", "text"))
            lines.append(LogLine(line.seconds("after") or 0.0, line.text("text")))
    return tuple(sorted(lines, key=lambda line: line.after))


def _ports(rule: Fields) -> dict[int, tuple[str, int]]:
    ports = {}
    texts = rule.labels("ports")
    fields = rule.section("ports", tuple(texts))
    for name, text in texts.items():
        host, _, port = text.rpartition(":")
        if not _is_port(str(name)):  # a number, if the source is a mapping of Python
            raise ScenarioError(f"{fields.path}.{name}: must be a port number from 1 to 65535")
        if not _is_loopback(host) or not _is_port(port):
            raise fields.error(name, "a TCP address of this machine, such as 127.0.0.1:8080")
        ports[int(name)] = (host.strip("[]"), int(port))
    return ports


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
