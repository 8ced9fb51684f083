"""JSON Patch (RFC 6902), as the real server's library (evanphx/json-patch, version 4) understands it.

It is laxer than the RFC and than the libraries for Python, and clients have come to rely on that: ``replace`` of a map
key adds it, ``test`` of a missing one against null passes, ``copy`` of a missing one adds null, a path without its
leading slash loses its first segment, and negative indexes count from the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import orjson

from envtest.apply.typed import same
from envtest.errors import StatusError

__all__ = ["MOST_COPIED", "MOST_OPERATIONS", "Inapplicable", "json_patch"]

MOST_OPERATIONS: Final = 10_000
"""How many operations one patch may have."""

MOST_COPIED: Final = 3 * 1024 * 1024
"""Bytes that the ``copy`` operations of one patch may add."""

_MESSAGE: Final = "the server rejected our request due to an error in our request"

_Container: TypeAlias = "dict[str, Any] | list[Any]"


class Inapplicable(Exception):
    """An operation does not apply; worded as that library does. A PATCH is not told why, an admission webhook is."""


def json_patch(target: Any, operations: list[Any]) -> Any:
    """``target`` after all ``operations``; it is not changed itself.

    Raises StatusError: 422 for whatever does not apply or is no operation, 413 for too many of them.
    """
    if len(operations) > MOST_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", message)
    document = orjson.loads(orjson.dumps(target))
    copied = 0
    try:
        for operation in operations:
            copied += _apply(document, operation if isinstance(operation, dict) else {})
            _check_copied(copied)
    except Inapplicable as refused:
        raise StatusError(422, "Invalid", _MESSAGE, {}) from refused
    return document


def _check_copied(size: int) -> None:
    if size > MOST_COPIED:
        grown = f"the accumulated size increase of copy is {size}, exceeding the limit {MOST_COPIED}"
        raise Inapplicable(f"unable to copy, {grown}")


def _apply(document: Any, operation: dict[str, Any]) -> int:
    """Returns by how many bytes copying made the document grow."""
    kind = operation.get("op")
    action = _ACTIONS.get(kind) if isinstance(kind, str) else None
    if action is None:
        raise Inapplicable(f"Unexpected kind: {kind}")
    return action(document, operation) or 0


def _locate(document: Any, path: Any, missing: str) -> tuple[_Container, str]:
    """The container that a path leads into, and the key or index within it; ``missing`` says that there is none."""
    refusal = Inapplicable(f"{missing.format(path)}: missing value")
    if not isinstance(path, str):
        raise refusal
    segments = path.split("/")
    if len(segments) < 2:
        raise refusal
    container = document
    for segment in segments[1:-1]:
        try:
            container = _get(container, _unescape(segment))
        except Inapplicable:
            raise refusal from None
        if not isinstance(container, dict | list):
            raise refusal
    return container, _unescape(segments[-1])


def _unescape(segment: str) -> str:
    return segment.replace("~1", "/").replace("~0", "~")


def _index(items: list[Any], key: str, *, limit: int) -> int:
    """A position in a list, of which ``limit`` exist; negative ones count from the end."""
    try:
        index = int(key)
    except ValueError as error:
        raise Inapplicable(f'strconv.Atoi: parsing "{key}": invalid syntax') from error
    if not -limit <= index < limit:
        raise Inapplicable(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + limit if index < 0 else index


def _get(container: _Container, key: str) -> Any:
    """What is there; ``None`` for a missing map key."""
    if isinstance(container, dict):
        return container.get(key)
    return container[_index(container, key, limit=len(container))]


def _put_new(container: _Container, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        container.insert(_index(container, key, limit=len(container) + 1), value)


def _take_out(container: _Container, key: str) -> Any:
    if isinstance(container, dict):
        if key not in container:
            raise Inapplicable(f"Unable to remove nonexistent key: {key}: missing value")
        return container.pop(key)
    return container.pop(_index(container, key, limit=len(container)))


@contextmanager
def _within(step: str) -> Iterator[None]:
    try:
        yield
    except Inapplicable as error:
        raise Inapplicable(f"error in {step}: {error}") from error


def _add(document: Any, operation: dict[str, Any]) -> None:
    path = operation.get("path")
    container, key = _locate(document, path, 'add operation does not apply: doc is missing path: "{}"')
    with _within(f"add for path: '{path}'"):
        _put_new(container, key, operation.get("value"))


def _remove(document: Any, operation: dict[str, Any]) -> None:
    path = operation.get("path")
    container, key = _locate(document, path, 'remove operation does not apply: doc is missing path: "{}"')
    with _within(f"remove for path: '{path}'"):
        _take_out(container, key)


def _replace(document: Any, operation: dict[str, Any]) -> None:
    path = operation.get("path")
    container, key = _locate(document, path, "replace operation does not apply: doc is missing path: {}")
    if isinstance(container, dict):
        container[key] = operation.get("value")
        return
    try:
        container[_index(container, key, limit=len(container))] = operation.get("value")
    except Inapplicable as error:
        raise Inapplicable(f"replace operation does not apply: doc is missing key: {path}: missing value") from error


def _move(document: Any, operation: dict[str, Any]) -> None:
    source, path = operation.get("from"), operation.get("path")
    container, key = _locate(document, source, "move operation does not apply: doc is missing from path: {}")
    with _within(f"move for path: '{key}'"):
        value = _take_out(container, key)
    container, key = _locate(document, path, "move operation does not apply: doc is missing destination path: {}")
    with _within(f"move for path: '{path}'"):
        _put_new(container, key, value)


def _copy(document: Any, operation: dict[str, Any]) -> int:
    source, path = operation.get("from"), operation.get("path")
    container, key = _locate(document, source, "copy operation does not apply: doc is missing from path: {}")
    with _within(f"copy for from: '{source}'"):
        data = orjson.dumps(_get(container, key))
    value = orjson.loads(data)
    container, key = _locate(document, path, "copy operation does not apply: doc is missing destination path: {}")
    with _within(f"copy for path: '{path}'"):
        _put_new(container, key, value)
    return len(data)


def _test(document: Any, operation: dict[str, Any]) -> None:
    path = operation.get("path")
    container, key = _locate(document, path, "test operation does not apply: is missing path: {}")
    with _within(f"test for path: '{path}'"):
        found = _get(container, key)
    if not same(found, operation.get("value")):
        raise Inapplicable(f"testing value {path} failed: test failed")


_ACTIONS: Final[dict[str, Callable[[Any, dict[str, Any]], int | None]]] = {
    "add": _add,
    "copy": _copy,
    "move": _move,
    "remove": _remove,
    "replace": _replace,
    "test": _test,
}
