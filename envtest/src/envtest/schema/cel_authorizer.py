"""The ``authorizer`` of admission's CEL expressions: may somebody do something?

``authorizer.group('apps').resource('deployments').namespace('x').check('get').allowed()``: what was asked so far is a
map that each function extends, ``check`` decides. Whom to ask is set around an evaluation with :func:`answering`.

Reference: https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

__all__ = ["Answer", "answering", "declare"]

Answer = Callable[[dict[str, Any], str], tuple[bool, str]]
"""Decides whether what was asked (keys group, resource, subresource, namespace, name, or path; ``account`` as
``namespace/name``) is allowed with a verb, and why."""

_ANSWER: ContextVar[Answer] = ContextVar("answer")
_SETTERS: Final = ("path", "group", "resource", "subresource", "namespace", "name")


@contextmanager
def answering(answer: Answer) -> Iterator[None]:
    """Lets ``answer`` decide for the expressions evaluated in this block."""
    token = _ANSWER.set(answer)
    try:
        yield
    finally:
        _ANSWER.reset(token)


def declare(method: Callable[..., None], opaque: Any, string: Any, boolean: Any) -> None:
    """Declares the functions: ``method(name, implementation, result, *parameters)`` does it for one."""
    for key in _SETTERS:
        method(key, _setter(key), opaque, opaque, string)
    method("serviceAccount", _service_account, opaque, opaque, string, string)
    method("check", _check, opaque, opaque, string)
    method("allowed", lambda decision: decision["allowed"], boolean, opaque)
    method("reason", lambda decision: decision["reason"], string, opaque)
    method("errored", lambda decision: False, boolean, opaque)
    method("error", lambda decision: "", string, opaque)


def _setter(key: str) -> Callable[[dict[str, Any], str], dict[str, Any]]:
    return lambda asked, value: {**_asked(asked), key: value}


def _service_account(asked: dict[str, Any], namespace: str, name: str) -> dict[str, Any]:
    return {**_asked(asked), "account": f"{namespace}/{name}"}


def _asked(value: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key != "requestResource"}


def _check(asked: dict[str, Any], verb: str) -> dict[str, Any]:
    allowed, reason = _ANSWER.get()(_asked(asked), verb)
    return {"allowed": allowed, "reason": reason}
