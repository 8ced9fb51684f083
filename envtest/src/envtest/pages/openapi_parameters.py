"""The parameters of requests for custom resources, as the OpenAPI documents describe them."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

__all__ = [
    "CREATE",
    "DELETE",
    "GET",
    "LIST",
    "PATCH",
    "shared_parameters",
    "v2_parameter",
    "v3_parameter",
]


class Parameter(Struct, frozen=True):
    """A parameter of the query or of the path; ``shared`` is its name in the list that a v2 document shares.

    kube-apiserver derives the names in this list from the parameters. It has none for a parameter that is repeated in
    each operation.
    """

    name: str
    description: str
    shared: str = ""
    type: str = "string"
    place: str = "query"


_FIELD_MANAGER: Final = "The name under which the server records who set the fields."
PARAMETERS: Final = {
    parameter.name: parameter
    for parameter in (
        Parameter(
            "allowWatchBookmarks",
            "Whether a watch also gets events of type BOOKMARK.",
            "allowWatchBookmarks-HC2hJt-J",
            "boolean",
        ),
        Parameter(
            "continue",
            "The token in the metadata of a list, with which the next page is requested.",
            "continue-QfD61s0i",
        ),
        Parameter("dryRun", "All: do everything except store the result."),
        Parameter("fieldManager", _FIELD_MANAGER, "fieldManager-Qy4HdaTW"),
        Parameter(
            "fieldSelector",
            "Restricts the objects to those whose fields have these values.",
            "fieldSelector-xIcQKXFG",
        ),
        Parameter(
            "fieldValidation",
            "What happens to unknown and duplicate fields: Ignore, Warn (the default) or Strict.",
        ),
        Parameter(
            "force",
            "Whether an apply takes fields that other managers own.",
            "force-tOGGb0Yi",
            "boolean",
        ),
        Parameter(
            "gracePeriodSeconds",
            "The seconds that the object gets before it is deleted.",
            "gracePeriodSeconds--K5HaBOS",
            "integer",
        ),
        Parameter(
            "ignoreStoreReadErrorWithClusterBreakingPotential",
            "Whether an object is deleted that the server cannot read from its store.",
            "ignoreStoreReadErrorWithClusterBreakingPotential-QbNkfIqj",
            "boolean",
        ),
        Parameter(
            "labelSelector",
            "Restricts the objects to those with these labels.",
            "labelSelector-5Zw57w4C",
        ),
        Parameter(
            "limit", "The largest number of objects in the list.", "limit-1NfNmdNH", "integer"
        ),
        Parameter("name", "name of the {kind}", place="path"),
        Parameter(
            "namespace",
            "object name and auth scope, such as for teams and projects",
            "namespace-vgWSWtn3",
            place="path",
        ),
        Parameter(
            "orphanDependents",
            "Deprecated in favor of propagationPolicy: whether dependent objects stay.",
            "orphanDependents-uRB25kX5",
            "boolean",
        ),
        Parameter("pretty", "Whether the output is indented.", "pretty-tJGM1-ng"),
        Parameter(
            "propagationPolicy",
            "What happens to dependent objects: Orphan, Background or Foreground.",
            "propagationPolicy-6jk3prlO",
        ),
        Parameter(
            "resourceVersion",
            "The resourceVersion that the result must have at least, or exactly.",
            "resourceVersion-5WAnf1kx",
        ),
        Parameter(
            "resourceVersionMatch",
            "How resourceVersion applies to a list: Exact or NotOlderThan.",
            "resourceVersionMatch-t8XhRHeC",
        ),
        Parameter(
            "sendInitialEvents",
            "Whether a watch begins with the objects that exist.",
            "sendInitialEvents-rLXlEK_k",
            "boolean",
        ),
        Parameter(
            "shardSelector",
            "Restricts the objects to a range of the hashes of a field.",
            "shardSelector-Kgyki_3_",
        ),
        Parameter(
            "timeoutSeconds",
            "The seconds after which the list or watch ends.",
            "timeoutSeconds-yvYezaOC",
            "integer",
        ),
        Parameter(
            "watch",
            "Whether changes are sent as a stream instead of a list.",
            "watch-XNNPZGbK",
            "boolean",
        ),
    )
}
_SHARED_PATCH_MANAGER: Final = "fieldManager-7c6nTn1T"

GET: Final = ("resourceVersion",)
LIST: Final = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
)
CREATE: Final = ("dryRun", "fieldManager", "fieldValidation")
PATCH: Final = ("dryRun", "fieldManager", "fieldValidation", "force")
DELETE: Final = (
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
)


def v3_parameter(name: str, kind: str) -> dict[str, Any]:
    """Return a parameter of a request for a ``kind`` in a v3 document."""
    parameter = PARAMETERS[name]
    described: dict[str, Any] = {
        "name": name,
        "in": parameter.place,
        "description": parameter.description.format(kind=kind),
        "schema": {"type": parameter.type, "uniqueItems": True},
    }
    if parameter.place == "path":
        described["required"] = True
    return described


def v2_parameter(name: str, kind: str, *, patch: bool = False) -> dict[str, Any]:
    """Return a parameter of a request for a ``kind`` in a v2 document; ``patch`` is whether it is of a patch."""
    parameter = PARAMETERS[name]
    shared = parameter.shared
    if patch and name == "fieldManager":
        shared = _SHARED_PATCH_MANAGER
    if shared:
        return {"$ref": f"#/parameters/{shared}"}
    return _v2_described(parameter, kind)


def shared_parameters() -> dict[str, Any]:
    """Return the parameters that the operations of a v2 document share, by their names in the list."""
    shared = {
        parameter.shared: _v2_described(parameter, "")
        for parameter in PARAMETERS.values()
        if parameter.shared
    }
    shared[_SHARED_PATCH_MANAGER] = {
        **_v2_described(PARAMETERS["fieldManager"], ""),
        "description": f"{_FIELD_MANAGER} An apply needs it.",
    }
    return shared


def _v2_described(parameter: Parameter, kind: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "uniqueItems": True,
        "type": parameter.type,
        "description": parameter.description.format(kind=kind),
        "name": parameter.name,
        "in": parameter.place,
    }
    if parameter.place == "path":
        described["required"] = True
    return described
