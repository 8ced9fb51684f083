"""The objects in manifest files, and the lines of their fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import yaml

from envtest.apimachinery.objects import Object
from envtest.endpoints.decoder import JSONError, load_json
from envtest.formats.duplicate_keys import repeated_keys
from envtest.formats.json_stream import error_line, is_json, split_values
from envtest.formats.manifests import split_documents
from envtest.formats.yaml_codec import Loader, YAMLError, load

__all__ = ["MAX_BYTES", "Document", "Manifest", "Source", "read_source"]

MAX_BYTES: Final = 64 << 20
"""Maximum size of a file. Objects are at most 3 MiB in kube-apiserver; a file can contain many."""

_STEP: Final = re.compile(r"\[([^\[\]]*+)\]|\.?([^.\[\]]+)")
_MAX_STEPS: Final = 400


def steps_of(path: str) -> list[str]:
    """Return the keys and positions in a path (``spec.containers[0].image``), at most 400; a key is cut at its dots."""
    found = [match[1] if match[1] is not None else match[2] for match in _STEP.finditer(path)]
    return found[:_MAX_STEPS]


_TEMPLATE: Final = (
    "if this is a template of Helm, check its result: helm template FOLDER | envtest validate -"
)


class Problem(NamedTuple):
    """A problem of a document itself: its line in the file, and a message."""

    line: int
    message: str


class Document:
    """A YAML document or JSON value: ``line`` is the line of the file on which it starts, the first is 1."""

    def __init__(self, file: str, line: int, data: bytes, *, json: bool = False) -> None:
        self.file = file
        self.line = line
        self._data = data
        self._json = json
        self._fields: dict[int, _Fields] = {}

    def load(self) -> tuple[Any, list[Problem]]:
        """Return the value, which is ``None`` for an empty or invalid document, and what is wrong with its syntax."""
        try:
            value = load_json(self._data) if self._json else load(self._data)
        except JSONError as error:
            line = self.line + error_line(self._data) - 1
            return None, [self._syntax_problem(line, f"json: {error}")]
        except YAMLError as error:
            line = self.line + error.line - 1
            return None, [self._syntax_problem(line, error.problem)]
        if value is None:
            return None, []
        try:
            orjson.dumps(value)
        except TypeError as error:
            return None, [Problem(self.line, f"cannot be expressed as JSON: {error}")]
        repeated = [
            Problem(self._line_of(text), text.partition(": ")[2]) for text in self._repeated_keys()
        ]
        return value, repeated

    def _syntax_problem(self, line: int, message: str) -> Problem:
        if b"{{" in self._data:
            message += f"; {_TEMPLATE}"
        return Problem(line, message)

    def _repeated_keys(self) -> list[str]:
        try:
            return repeated_keys(self._data)
        except yaml.YAMLError:
            return []  # not all JSON is YAML

    def _line_of(self, message: str) -> int:
        """Return the line of the file that a message about a line of this document names: ``line 4: ...``."""
        number, _, _ = message.removeprefix("line ").partition(":")
        return self.line + int(number) - 1

    def locate(self, path: str) -> int:
        """Return the line of a field (``spec.containers[0].image``); of its closest parent if it does not exist."""
        node = self._root
        line = self._first_line()
        steps = steps_of(path)
        while steps and node is not None:
            found = self._child(node, steps)
            if found is None:
                break
            line, node, taken = found
            steps = steps[taken:]
        return self.line + line

    @cached_property
    def _root(self) -> yaml.Node | None:
        try:
            root: yaml.Node | None = yaml.compose(self._data, Loader=Loader)
        except yaml.YAMLError:
            return None  # not all JSON is YAML
        return root

    def _first_line(self) -> int:
        return self._root.start_mark.line if self._root is not None else 0

    def _child(self, node: yaml.Node, steps: list[str]) -> tuple[int, yaml.Node, int] | None:
        """Return the line of the child that the first steps name, the child, and how many steps name it."""
        if isinstance(node, yaml.SequenceNode):
            if not steps[0].isdecimal() or int(steps[0][:9]) >= len(node.value):
                return None
            item = node.value[int(steps[0])]
            return item.start_mark.line, item, 1
        if not isinstance(node, yaml.MappingNode):
            return None
        fields = self._fields.get(id(node))
        if fields is None:
            fields = {
                key.value: (key.start_mark.line, value)
                for key, value in node.value
                if _is_scalar(key)
            }
            self._fields[id(node)] = fields
        # a key such as app.kubernetes.io/name contains the separator
        for count in range(1, len(steps) + 1):
            entry = fields.get(".".join(steps[:count]))
            if entry is not None:
                return *entry, count
        return None


_Fields: TypeAlias = dict[str, tuple[int, yaml.Node]]
"""The lines and values of the keys of a mapping."""


def _is_scalar(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


class Manifest(NamedTuple):
    """An object to check: where it is, and the prefix of its paths, which is not empty in a List."""

    document: Document
    obj: Object
    prefix: str

    def locate(self, path: str) -> int:
        """Return the line of a field of the object."""
        whole_path = f"{self.prefix}.{path}" if self.prefix and path else self.prefix or path
        return self.document.locate(whole_path)


class Source(NamedTuple):
    """What a file contains: its objects, the problems of its documents, and how many documents are not objects.

    Documents that are not objects are only problems of a file that contains objects.
    """

    manifests: list[Manifest]
    problems: list[Problem]
    others: int


def read_source(file: str, data: bytes) -> Source:
    """Return the objects of a YAML or JSON file; ``file`` is its name in messages."""
    source = Source([], [], 0)
    others: list[Problem] = []
    for document in _documents(file, data):
        value, problems = document.load()
        if value is None:
            source.problems.extend(problems)
        elif not isinstance(value, dict) or not (value.get("apiVersion") or value.get("kind")):
            others.append(Problem(document.locate(""), _not_an_object(value)))
        else:
            source.problems.extend(problems)
            for manifest in _objects(Manifest(document, value, "")):
                missing = [
                    name for name in ("apiVersion", "kind") if not _is_text(manifest.obj.get(name))
                ]
                if missing:
                    source.problems.append(
                        Problem(manifest.locate(missing[0]), f"{missing[0]} is missing")
                    )
                else:
                    source.manifests.append(manifest)
    if source.manifests:
        source.problems.extend(others)
    return source._replace(others=len(others))


def _not_an_object(value: object) -> str:
    if isinstance(value, dict):
        return "apiVersion and kind are missing"
    found = "a list" if isinstance(value, list) else "text"
    return f"{found} is not a Kubernetes object"


def _documents(file: str, data: bytes) -> Iterator[Document]:
    """Yield the documents of a file as kubectl reads it; after JSON, there can be a separator and YAML."""
    if not is_json(data):
        for line, text in split_documents(data):
            yield Document(file, line, text)
        return
    for line, value in split_values(data):
        if value.startswith(b"---"):
            for offset, text in split_documents(value):
                yield Document(file, line + offset - 1, text)
        else:
            yield Document(file, line, value, json=True)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _objects(manifest: Manifest) -> Iterator[Manifest]:
    """Yield the items of a List, or the object itself."""
    items = manifest.obj.get("items")
    if not (str(manifest.obj.get("kind")).endswith("List") and isinstance(items, list)):
        yield manifest
        return
    kind = str(manifest.obj["kind"]).removesuffix("List")
    version = manifest.obj.get("apiVersion")
    for position, item in enumerate(items):
        if isinstance(item, dict):
            identity = {"apiVersion": version, "kind": kind} if kind else {}
            yield Manifest(manifest.document, {**identity, **item}, f"items[{position}]")
