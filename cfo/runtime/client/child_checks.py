"""Errors in descriptions of children, and in what their functions return, before a request is sent with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from cfo.runtime.client.child import Child, ObjectID, Update, id_text, is_id
from cfo.runtime.objects.unstructured import (
    Object,
    gvk_of,
    key_of,
    namespace_of,
)
from cfo.runtime.process.arguments import (
    InvalidArgument,
    require_plain_function,
    shown,
    truth_of,
    wrong_result,
)


def check_children(children: Iterable[Child], owner: Object) -> None:
    """Raise for children of ``owner`` that no order of writes could bring to their desired state."""
    ids: set[ObjectID] = set()
    possible: set[ObjectID] = set()  # of the earlier children and their fallbacks
    for child in children:
        if not isinstance(child, Child):
            raise TypeError(
                f"children: {shown(child)}: must be a Child, such as Child.present(obj)"
            )
        if child.id in ids:
            raise InvalidArgument(f"children: {id_text(child.id)}: must not be there twice")
        ids.add(child.id)
        alternative: Child | None = child
        while alternative is not None:
            _check_identity(alternative)
            _check_functions(alternative)
            _check_namespace(alternative, owner)
            _check_requirements(child, alternative, possible)
            alternative = alternative.fallback
        alternative = child
        while alternative is not None:
            possible.add(alternative.id)
            alternative = alternative.fallback


def _check_requirements(child: Child, alternative: Child, possible: Collection[ObjectID]) -> None:
    """Raise for a requirement of ``child``, or of its fallback, that is not ``possible``: that of an earlier child."""
    requires = alternative.requires
    if not isinstance(requires, Collection) or not all(map(is_id, requires)):
        raise TypeError(
            f"children: {id_text(child.id)}: requires {requires!r:.200}: must be a list of the ids of earlier "
            "children, such as [other.id]"
        )
    for required in requires:
        if required not in possible:
            raise InvalidArgument(
                f"children: {id_text(child.id)}: requires {id_text(required)}, which must be an earlier child"
            )


def _check_identity(child: Child) -> None:
    """Raise :class:`InvalidArgument` for a child without a field that every request for it needs."""
    gvk, key = child.id
    fields = {"apiVersion": gvk.version, "kind": gvk.kind, "metadata.name": key.name}
    for field, value in fields.items():
        if not value:
            raise InvalidArgument(f"children: {id_text(child.id)}: {field} is missing")


def _check_functions(child: Child) -> None:
    """Raise :class:`TypeError` for an async function: its coroutine would count as true, or as a patch."""
    functions = {
        "compute": child.compute,
        "belongs": child.belongs,
        "is_trusted": child.is_trusted,
        "adoption": child.adoption,
        "update": None if isinstance(child.update, Update) else child.update,
    }
    for name, function in functions.items():
        if function is not None:
            require_plain_function(f"{id_text(child.id)}: {name}", function, "a function")


def _check_namespace(child: Child, owner: Object) -> None:
    """Raise :class:`ValueError` for an object that cannot be recognized as one of ``owner``: it would be kept as is."""
    namespace = namespace_of(owner)
    if not namespace or child.belongs is not None:
        return
    if not child.key.namespace:
        raise InvalidArgument(
            f"children: {id_text(child.id)}: metadata.namespace is missing: must be {namespace}, that of its owner; a "
            "cluster-scoped child needs belongs, a function that recognizes the object"
        )
    if child.key.namespace != namespace:
        raise InvalidArgument(
            f"children: {id_text(child.id)}: not in the namespace of its owner {key_of(owner)}, which thus cannot be "
            "its controller: set belongs, a function that recognizes the object"
        )


def check_computed(child: Child, computed: object) -> None:
    """Raise unless ``compute`` of a child returned the object that was checked: of its kind, namespace and name."""
    if isinstance(computed, dict):
        actual = gvk_of(computed), key_of(computed)
        if actual == child.id:
            return
        raise InvalidArgument(
            f"children: {id_text(child.id)}: compute returned {id_text(actual)}: must return an object of the "
            "child's kind, namespace and name"
        )
    raise _wrong_result(child, "compute", computed, "an object, a dict")


def checked_patch(child: Child, function: str, patch: Any) -> Mapping[str, Any] | None:
    """Return the patch that a function of a child returned; raise :class:`TypeError` for what is none."""
    if patch is not None and not isinstance(patch, Mapping):
        raise _wrong_result(child, function, patch, "a merge patch, a dict")
    return patch


def _wrong_result(child: Child, function: str, result: object, allowed: str) -> TypeError:
    return wrong_result(f"children: {id_text(child.id)}: {function}", result, allowed)


def checked_truth(child: Child, name: str, result: object) -> bool:
    """Return whether the function ``name`` of a child returned what is true; see :func:`truth_of`."""
    if isinstance(result, bool):
        return result
    return truth_of(f"{id_text(child.id)}: {name}", result)
