"""The ``authorizer`` variable of CEL in admission: checks whether a user is allowed to do something.

In ``authorizer.group('apps').resource('deployments').namespace('x').check('get').allowed()`` each function extends a
map of attributes, and ``check`` decides. :func:`authorize_with` sets the authorization check for an evaluation.

Reference: https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

__all__ = ["AuthorizationCheck", "authorize_with", "declare"]

AuthorizationCheck = Callable[[dict[str, Any], str], tuple[bool, str]]
"""Decides whether a verb is allowed on the attributes, and returns the decision with its reason.

The attributes are group, resource, subresource, namespace, name and selectors, or path; ``account`` is
``namespace/name`` of a service account. RBAC ignores selectors."""

_CHECK: ContextVar[AuthorizationCheck] = ContextVar("check")
_SETTERS: Final = (
    "path",
    "group",
    "resource",
    "subresource",
    "namespace",
    "name",
    "fieldSelector",
    "labelSelector",
)


@contextmanager
def authorize_with(check: AuthorizationCheck) -> Iterator[None]:
    """Use ``check`` for all expressions that are evaluated in this block."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def declare(method: Callable[..., None], opaque: Any, string: Any, boolean: Any) -> None:
    """Declare the functions; ``method(name, implementation, result, *parameters)`` declares one."""
    for key in _SETTERS:
        method(key, _setter(key), opaque, opaque, string)
    method("serviceAccount", _service_account, opaque, opaque, string, string)
    method("check", _check, opaque, opaque, string)
    method("allowed", lambda decision: decision["allowed"], boolean, opaque)
    method("reason", lambda decision: decision["reason"], string, opaque)
    method("errored", lambda decision: False, boolean, opaque)
    method("error", lambda decision: "", string, opaque)


def _setter(key: str) -> Callable[[dict[str, Any], str], dict[str, Any]]:
    return lambda attributes, value: {**_attributes(attributes), key: value}


def _service_account(attributes: dict[str, Any], namespace: str, name: str) -> dict[str, Any]:
    return {**_attributes(attributes), "account": f"{namespace}/{name}"}


def _attributes(value: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key != "requestResource"}


def _check(attributes: dict[str, Any], verb: str) -> dict[str, Any]:
    allowed, reason = _CHECK.get()(_attributes(attributes), verb)
    return {"allowed": allowed, "reason": reason}
