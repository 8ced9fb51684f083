"""The JSON types of the fields of Flux objects that the validators read, checked before anything else reads them.

API servers validate objects against the CRDs before they call validating webhooks, but any pod can call a webhook.
Quantities and booleans can have any type for the validators.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from cfo.api.flux.names import COMMANDS
from cfo.api.reading import has_more_values_than, mapping
from cfo.runtime import FieldError
from cfo.runtime.objects.field import MAX_ERRORS, OMIT, type_invalid
from cfo.webhooks.shapes import Shape, mismatches

_STRING: Final = Shape(str)
_INTEGER: Final = Shape(int)
_OBJECT: Final = Shape(dict)
_STRINGS: Final = Shape(list, items=Shape(str, required=True))
_STRING_BY_NAME: Final = Shape(dict, values=Shape(str, required=True))
_RESOURCES: Final = Shape(dict, {"limits": _OBJECT, "requests": _OBJECT})


def _strings(*names: str) -> dict[str, Shape]:
    """Return the shapes of fields that are strings."""
    return dict.fromkeys(names, _STRING)


_VOLUME: Final = Shape(
    dict,
    {
        **_strings(
            "claimName",
            "configMapName",
            "csiDriver",
            "emptyDirMedium",
            "emptyDirSizeLimit",
            "hostPath",
            "path",
            "secretName",
        ),
        "csiDriverAttributes": _STRING_BY_NAME,
        "items": _STRING_BY_NAME,
    },
    required=True,
)
_CONTAINER: Final = Shape(
    dict,
    {
        **_strings("command", "image", "imagePullPolicy", "imagePullSecret", "logs", "name"),
        "workingDir": _STRING,
        "commands": Shape(dict, _strings(*COMMANDS)),
        "environment": _STRING_BY_NAME,
        "lifeCycle": Shape(dict, _strings("postStartExec", "preStopExec")),
        "ports": Shape(list, items=Shape(int, required=True)),
        "resources": _RESOURCES,
        "secrets": Shape(dict, values=Shape(dict, _strings("key", "name"), required=True)),
        "securityContext": _OBJECT,
        "volumes": Shape(dict, values=_VOLUME),
    },
    required=True,
)
_CONTAINERS: Final = Shape(list, items=_CONTAINER)
_LEAD_BROKER: Final = Shape(
    dict, {**_strings("address", "name"), "port": _INTEGER, "size": _INTEGER}
)
_BURSTED_CLUSTER: Final = Shape(dict, {"name": _STRING, "size": _INTEGER}, required=True)
_BURSTING: Final = Shape(
    dict,
    {
        "clusters": Shape(list, items=_BURSTED_CLUSTER),
        "hostlist": _STRING,
        "leadBroker": _LEAD_BROKER,
    },
)
_FLUX_CONTAINER: Final = Shape(
    dict,
    {
        **_strings("image", "imagePullSecret", "mountPath", "name", "pythonPath", "workingDir"),
        "resources": _RESOURCES,
        "securityContext": _OBJECT,
    },
)
_FLUX: Final = Shape(
    dict,
    {
        **_strings("arch", "brokerConfig", "connectTimeout", "curveCert", "mungeSecret"),
        **_strings("optionFlags", "submitCommand", "topology", "wrap"),
        "bursting": _BURSTING,
        "container": _FLUX_CONTAINER,
        "environment": _STRING_BY_NAME,
        "logLevel": _INTEGER,
        "scheduler": Shape(dict, {"queuePolicy": _STRING}),
    },
)
_TOLERATION: Final = Shape(dict, _strings("effect", "key", "operator", "value"), required=True)
_POD: Final = Shape(
    dict,
    {
        **_strings("dnsPolicy", "restartPolicy", "runtimeClassName", "schedulerName"),
        "serviceAccountName": _STRING,
        "annotations": _STRING_BY_NAME,
        "labels": _STRING_BY_NAME,
        "nodeAffinity": Shape(dict, values=_STRINGS),
        "nodeSelector": _STRING_BY_NAME,
        "resources": _OBJECT,
        "securityContext": _OBJECT,
        "tolerations": Shape(list, items=_TOLERATION),
    },
)
_MINICLUSTER_FIELDS: Final = {
    **dict.fromkeys(("backoffLimit", "deadlineSeconds", "maxSize", "minSize"), _INTEGER),
    **dict.fromkeys(("size", "tasks", "ttlSecondsAfterFinished"), _INTEGER),
    "archive": Shape(dict, {"path": _STRING}),
    "containers": _CONTAINERS,
    "flux": _FLUX,
    "jobLabels": _STRING_BY_NAME,
    "logging": _OBJECT,
    "network": Shape(dict, {"headlessName": _STRING}),
    "pod": _POD,
    "services": _CONTAINERS,
}
_SELECTOR_RULE: Final = Shape(
    dict, {"key": _STRING, "operator": _STRING, "values": _STRINGS}, required=True
)

MINICLUSTER_SPEC: Final = Shape(dict, _MINICLUSTER_FIELDS)
"""The shape of the spec of a MiniCluster."""

FLUX_JOB_SPEC: Final = Shape(
    dict,
    {
        **dict.fromkeys(("backoffLimit", "deadlineSeconds", "priority", "size"), _INTEGER),
        **dict.fromkeys(("tasks", "ttlSecondsAfterFinished"), _INTEGER),
        **_strings("command", "image", "priorityClassName", "workingDir"),
        "environment": _STRING_BY_NAME,
        "resources": _RESOURCES,
        "template": MINICLUSTER_SPEC,
    },
)
"""The shape of the spec of a FluxJob."""

FLUX_SETUP_SPEC: Final = Shape(
    dict,
    {
        **_strings("fairness", "preemption", "queue", "queueingStrategy"),
        "kueue": Shape(dict, {"localQueue": _STRING}),
        "max-jobs": _INTEGER,
        "max-size": _INTEGER,
        "mini-cluster": MINICLUSTER_SPEC,
        "namespaceSelector": Shape(
            dict,
            {
                "matchExpressions": Shape(list, items=_SELECTOR_RULE),
                "matchLabels": _STRING_BY_NAME,
            },
        ),
        "resources": _OBJECT,
        "weights": Shape(dict, values=Shape(int, required=True)),
    },
)
"""The shape of the spec of a FluxSetup."""

_TYPES: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
}


def json_type_errors(obj: Mapping[str, Any], spec: Shape) -> list[FieldError]:
    """Return an error for each field in the spec of ``obj`` that has another JSON type than in the shape ``spec``.

    Nothing is checked if the spec has more values than the rules allow, which report that before they read a field.
    """
    if is_too_large(obj):
        return []
    wrong = islice(mismatches(obj.get("spec"), spec), MAX_ERRORS + 1)
    return [
        type_invalid(f"spec{path}", OMIT, f"must be {_TYPES[expected]}")
        for path, _, expected in wrong
    ]


def is_too_large(obj: Mapping[str, Any]) -> bool:
    """Return whether the spec of ``obj`` has more values than the rules allow, so that its types are not checked."""
    from cfo.api.flux.validation.syntax import MAX_VALUES

    return has_more_values_than(MAX_VALUES, mapping(obj.get("spec")))
