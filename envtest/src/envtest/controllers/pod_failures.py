"""How a pod without annotations fails in an obvious way: pure functions of its spec.

The pod runner runs no containers, has no registry and reads no Secrets, so only what the spec itself says counts: an
image that is not a valid name; the name of an image, or of a Secret or ConfigMap in a volume, that says that it does
not exist; a shell command that ends with ``exit N``; and requests that are more than a node has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from envtest.apimachinery.objects import Object
from envtest.builtins.pod_resources import total_resources
from envtest.schema.quantity import parse_quantity
from envtest.simulation import model

__all__ = [
    "CAPACITY",
    "ImageProblem",
    "exit_code",
    "image_problem",
    "insufficient_resources",
    "mount_problem",
    "obvious_behavior",
]

CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
"""The capacity of the only node. The pods of a plane are not added up: each one is compared with the whole node."""

_MAX_LENGTH: Final = 1024
"""Characters of an image or a command that are examined; longer ones have no known problem."""

_IMAGE: Final = re.compile(
    r"[a-zA-Z0-9.-]{1,255}(?::[0-9]{1,5})?(?:/[a-z0-9._-]{1,255}){0,32}(?::[\w.-]{1,128})?(?:@[a-z0-9]{1,16}:[a-f0-9]{32,128})?"
)
_ABSENT: Final = re.compile(r"does-not-exist|not-found|no-such|non-?existent|:404\Z")
_ABSENT_ENDINGS: Final = ("does-not-exist", "not-found", "no-such", "nonexistent")
"""Ends of the names of Secrets and ConfigMaps; names that are derived from an object called so continue after it."""

_INVALID_REGISTRY: Final = ".invalid"
_SHELLS: Final = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})
_SHELL_IMAGES: Final = frozenset({"alpine", "bash", "busybox", "debian", "fedora", "ubuntu"})
"""The last parts of the names of images that run a shell if the container has no command."""
_CODES: Final = {"true": 0, "/bin/true": 0, "false": 1, "/bin/false": 1}
_EXIT: Final = re.compile(r"(?:^|[;\n])[ \t]*exit[ \t]+([0-9]{1,3})[ \t\n]*\Z")


class ImageProblem(NamedTuple):
    """Why the image of a container cannot be pulled, with the words of the kubelet."""

    container: str
    image: str
    reason: str
    message: str


def image_problem(pod: Object) -> ImageProblem | None:
    """Return the problem of the first container whose image cannot be pulled.

    Invalid are names that are no image references. Not found are registries below the reserved domain ``.invalid``, and
    names that contain ``does-not-exist``, ``not-found``, ``no-such`` or ``nonexistent``, or have the tag ``404``.
    """
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        image = container.get("image") or ""
        if not image or len(image) > _MAX_LENGTH:
            continue
        if not _IMAGE.fullmatch(image):
            message = (
                f'Failed to apply default image tag "{image}": '
                "couldn't parse image name: invalid reference format"
            )
            return ImageProblem(container["name"], image, "InvalidImageName", message)
        registry = image.partition("/")[0].partition(":")[0]
        if _ABSENT.search(image) or registry.endswith(_INVALID_REGISTRY):
            message = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": not found'
            return ImageProblem(container["name"], image, "ErrImagePull", message)
    return None


def mount_problem(pod: Object) -> str:
    """Return kubelet's message about the first volume whose Secret or ConfigMap does not exist; empty if all do.

    Those are names that end with ``does-not-exist``, ``not-found``, ``no-such`` or ``nonexistent``.
    """
    for volume in pod["spec"].get("volumes") or ():
        for kind, source, field in (
            ("secret", volume.get("secret"), "secretName"),
            ("configmap", volume.get("configMap"), "name"),
        ):
            name = (source or {}).get(field) or ""
            if name and not source.get("optional") and name.endswith(_ABSENT_ENDINGS):
                return f'MountVolume.SetUp failed for volume "{volume["name"]}" : {kind} "{name}" not found'
    return ""


def exit_code(container: Mapping[str, Any]) -> int | None:
    """Return the code of a container whose command is ``true``, ``false`` or a shell that ends with ``exit N``."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if len(words) == 1:
        return _CODES.get(words[0])
    if len(words) != 3 or words[0] not in _SHELLS or words[1] not in ("-c", "-ec", "-lc"):
        return None
    match = _EXIT.search(words[2]) if len(words[2]) <= _MAX_LENGTH else None
    return int(match[1]) % 256 if match else None


def _ends_without_command(container: Mapping[str, Any]) -> bool:
    """Return whether a container without a command runs a shell, which ends at once because it has no input."""
    if container.get("command") or container.get("args"):
        return False
    if container.get("stdin") or container.get("tty"):
        return False
    last = (container.get("image") or "")[:_MAX_LENGTH].rpartition("/")[2]
    name = last.partition("@")[0].partition(":")[0]
    return name in _SHELL_IMAGES


def obvious_behavior(pod: Object) -> model.Behavior:
    """Return how a pod fails or ends, for the fields that no rule of a scenario sets."""
    problem = image_problem(pod)
    containers = (
        *(pod["spec"].get("initContainers") or ()),
        *(pod["spec"].get("containers") or ()),
    )
    codes = {each["name"]: exit_code(each) for each in containers}
    codes |= {each["name"]: 0 for each in containers if _ends_without_command(each)}
    runs = {name: (model.Run(0.0, code),) for name, code in codes.items() if code is not None}
    return model.Behavior(
        image=problem
        and model.ImageProblem(problem.reason, problem.message, None, (problem.container,)),
        runs=runs or None,
    )


def insufficient_resources(pod: Object) -> str:
    """Return the message of kube-scheduler if the pod requests more than the node has; otherwise an empty string."""
    requests = total_resources(pod["spec"], "requests")
    reasons = [
        f"1 Insufficient {name}"
        for name in ("cpu", "memory")
        if name in requests and requests[name] > parse_quantity(CAPACITY[name])
    ]
    if not reasons:
        return ""
    return (
        f"0/1 nodes are available: {', '.join(reasons)}. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
