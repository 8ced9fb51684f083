"""JSON Patch (RFC 6902) with the behavior of kube-apiserver's library (evanphx/json-patch, version 4).

The library is laxer than the RFC and than Python libraries, and clients rely on that: for a missing map key,
``replace`` adds it, ``test`` against null passes and ``copy`` adds null; a path without its leading
slash loses its first segment, and negative indexes count from the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import orjson

from envtest.apimachinery.errors import StatusError
from envtest.apply.json_text import has_text

__all__ = [
    "MAX_COPIED_BYTES",
    "MAX_OPERATIONS",
    "PatchNotApplicable",
    "PatchTestFailed",
    "json_patch",
]

MAX_OPERATIONS: Final = 10_000
"""The maximum number of operations in one patch."""

MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
"""The maximum number of bytes that the ``copy`` operations of one patch can add."""

_MESSAGE: Final = "the server rejected our request due to an error in our request"

_Container: TypeAlias = "dict[str, Any] | list[Any]"


class PatchNotApplicable(Exception):
    """Raised if an operation does not apply; the message is the library's.

    A PATCH request does not get the message, but the error of an admission webhook contains it.
    """


class PatchTestFailed(PatchNotApplicable):
    """Raised if the value of a ``test`` operation differs."""


def json_patch(target: Any, operations: list[Any], texts: Sequence[Any] = ()) -> Any:
    """Return ``target`` after all ``operations``; ``target`` is not modified.

    ``texts`` are the operations as the client wrote them, from :func:`envtest.apply.json_text.texts_of`, or empty.
    Raises StatusError: 422 when an operation is invalid or does not apply, 413 for too many operations.
    """
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", message)
    document = orjson.loads(orjson.dumps(target))
    copied = 0
    try:
        _check_texts(document, operations, texts)
        for operation in operations:
            # other values have no op, which is an error of its own
            fields = operation if isinstance(operation, dict) else {}
            if fields.get("path") == "" and fields.get("op") in _WHOLE_DOCUMENT:
                document = _WHOLE_DOCUMENT[fields["op"]](document, fields.get("value"))
                continue
            copied += _apply(document, fields)
            _check_copied_size(copied)
    except PatchNotApplicable as error:
        raise StatusError(422, "Invalid", _MESSAGE, {}) from error
    return document


def _check_texts(document: Any, operations: list[Any], texts: Sequence[Any]) -> None:
    """Check the texts of the values that a patch tests before it changes anything; later ones are values."""
    for operation, text in zip(operations, texts, strict=False):
        if not isinstance(operation, dict) or operation.get("op") != "test":
            return
        path = operation.get("path")
        found = document
        if path != "":
            container, key = _locate(
                document, path, "test operation does not apply: is missing path: {}"
            )
            found = _get(container, key)
        try:
            is_equal = has_text(found, text.get("value"))
        except RecursionError:
            is_equal = False
        if not is_equal:
            raise PatchTestFailed(f"testing value {path} failed: test failed")


def _check_copied_size(size: int) -> None:
    if size > MAX_COPIED_BYTES:
        reason = f"the accumulated size increase of copy is {size}, exceeding the limit {MAX_COPIED_BYTES}"
        raise PatchNotApplicable(f"unable to copy, {reason}")


def _apply(document: Any, operation: dict[str, Any]) -> int:
    """Apply one operation and return the number of bytes by which copying increased the document."""
    kind = operation.get("op")
    action = _ACTIONS.get(kind) if isinstance(kind, str) else None
    if action is None:
        raise PatchNotApplicable(f"Unexpected kind: {kind}")
    return action(document, operation) or 0


def _locate(document: Any, path: Any, missing: str) -> tuple[_Container, str]:
    """Return the container of a path's last segment, and that segment; ``missing`` is the error when there is none."""
    error = PatchNotApplicable(f"{missing.format(path)}: missing value")
    if not isinstance(path, str):
        raise error
    segments = path.split("/")
    if len(segments) < 2:
        raise error
    container = document
    for segment in segments[1:-1]:
        try:
            container = _get(container, _unescape(segment))
        except PatchNotApplicable:
            raise error from None
        if not isinstance(container, dict | list):
            raise error
    return container, _unescape(segments[-1])


def _unescape(segment: str) -> str:
    return segment.replace("~1", "/").replace("~0", "~")


def _index(items: list[Any], key: str, *, limit: int) -> int:
    """Return the position in a list with ``limit`` positions; negative indexes count from the end."""
    try:
        index = int(key)
    except ValueError as error:
        raise PatchNotApplicable(f'strconv.Atoi: parsing "{key}": invalid syntax') from error
    if not -limit <= index < limit:
        raise PatchNotApplicable(
            f"Unable to access invalid index: {index}: invalid index referenced"
        )
    return index + limit if index < 0 else index


def _get(container: _Container, key: str) -> Any:
    """Return the value; ``None`` for a missing map key."""
    if isinstance(container, dict):
        return container.get(key)
    return container[_index(container, key, limit=len(container))]


def _insert(container: _Container, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        container.insert(_index(container, key, limit=len(container) + 1), value)


def _pop(container: _Container, key: str) -> Any:
    if isinstance(container, dict):
        if key not in container:
            raise PatchNotApplicable(f"Unable to remove nonexistent key: {key}: missing value")
        return container.pop(key)
    return container.pop(_index(container, key, limit=len(container)))


@contextmanager
def _wrap_errors(step: str) -> Iterator[None]:
    try:
        yield
    except PatchNotApplicable as error:
        raise PatchNotApplicable(f"error in {step}: {error}") from error


def _add(document: Any, operation: dict[str, Any]) -> None:
    path = operation.get("path")
    container, key = _locate(
        document, path, 'add operation does not apply: doc is missing path: "{}"'
    )
    with _wrap_errors(f"add for path: '{path}'"):
        _insert(container, key, operation.get("value"))


def _remove(document: Any, operation: dict[str, Any]) -> None:
    path = operation.get("path")
    container, key = _locate(
        document, path, 'remove operation does not apply: doc is missing path: "{}"'
    )
    with _wrap_errors(f"remove for path: '{path}'"):
        _pop(container, key)


def _replace(document: Any, operation: dict[str, Any]) -> None:
    path = operation.get("path")
    container, key = _locate(
        document, path, "replace operation does not apply: doc is missing path: {}"
    )
    if isinstance(container, dict):
        container[key] = operation.get("value")
        return
    try:
        container[_index(container, key, limit=len(container))] = operation.get("value")
    except PatchNotApplicable as error:
        raise PatchNotApplicable(
            f"replace operation does not apply: doc is missing key: {path}: missing value"
        ) from error


def _move(document: Any, operation: dict[str, Any]) -> None:
    source = operation.get("from")
    path = operation.get("path")
    container, key = _locate(
        document, source, "move operation does not apply: doc is missing from path: {}"
    )
    with _wrap_errors(f"move for path: '{key}'"):
        value = _pop(container, key)
    container, key = _locate(
        document, path, "move operation does not apply: doc is missing destination path: {}"
    )
    with _wrap_errors(f"move for path: '{path}'"):
        _insert(container, key, value)


def _copy(document: Any, operation: dict[str, Any]) -> int:
    source = operation.get("from")
    path = operation.get("path")
    container, key = _locate(
        document, source, "copy operation does not apply: doc is missing from path: {}"
    )
    with _wrap_errors(f"copy for from: '{source}'"):
        data = orjson.dumps(_get(container, key))
    value = orjson.loads(data)
    container, key = _locate(
        document, path, "copy operation does not apply: doc is missing destination path: {}"
    )
    with _wrap_errors(f"copy for path: '{path}'"):
        _insert(container, key, value)
    return len(data)


def _has_same_text(found: Any, value: Any) -> bool:
    """Compare by the texts of scalars, as kube-apiserver does, so that ``1`` differs from ``1.0``."""
    return found == value and orjson.dumps(found, option=_SORTED) == orjson.dumps(
        value, option=_SORTED
    )


def _test(document: Any, operation: dict[str, Any]) -> None:
    path = operation.get("path")
    container, key = _locate(document, path, "test operation does not apply: is missing path: {}")
    with _wrap_errors(f"test for path: '{path}'"):
        found = _get(container, key)
    if not _has_same_text(found, operation.get("value")):
        raise PatchTestFailed(f"testing value {path} failed: test failed")


def _replace_document(_: Any, value: Any) -> Any:
    if not isinstance(value, dict | list):
        raise PatchNotApplicable("replace operation value must be object or array: %!w(<nil>)")
    return orjson.loads(orjson.dumps(value))


def _test_document(document: Any, value: Any) -> Any:
    if not _has_same_text(document, value):
        raise PatchTestFailed("testing value  failed: test failed")
    return document


_SORTED: Final = orjson.OPT_SORT_KEYS

_WHOLE_DOCUMENT: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "replace": _replace_document,
    "test": _test_document,
}
"""The operations that an empty path applies to the whole document; the others do not apply."""

_ACTIONS: Final[dict[str, Callable[[Any, dict[str, Any]], int | None]]] = {
    "add": _add,
    "copy": _copy,
    "move": _move,
    "remove": _remove,
    "replace": _replace,
    "test": _test,
}
