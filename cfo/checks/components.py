"""Reads the other components of an installation: their CRDs, Deployments and versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cfo.api.reading import text
from cfo.checks.findings import Finding, not_needed, ok, warn
from cfo.runtime import DEPLOYMENT, Client, NamespacedName, Object, key_of
from cfo.runtime.objects import CUSTOM_RESOURCE_DEFINITION

_MAX_IMAGE: Final = 1_000
"""Characters of an image: a registry, a name, a tag and a digest."""

_MAX_SHOWN: Final = 5
"""How many Deployments of a component have a finding of their own."""

_VERSION: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class InstalledCRD:
    """A CRD: whether it exists and is established, and the versions that it serves."""

    exists: bool
    established: bool = False
    served: tuple[str, ...] = ()


async def read_custom_resource(client: Client, name: str) -> InstalledCRD:
    """Read the CRD ``name``."""
    crd = await client.get(CUSTOM_RESOURCE_DEFINITION, NamespacedName("", name), live=True)
    if crd is None:
        return InstalledCRD(exists=False)
    conditions = (crd.get("status") or {}).get("conditions") or ()
    established = any(
        each.get("type") == "Established" and each.get("status") == "True" for each in conditions
    )
    served = tuple(each["name"] for each in crd["spec"].get("versions") or () if each.get("served"))
    return InstalledCRD(exists=True, established=established, served=served)


async def read_deployments(
    client: Client, names: Iterable[str], deployment: str
) -> list[tuple[NamespacedName, str]]:
    """Return :func:`find_deployments` with the image of their first container, without those of 0 replicas."""
    found = await find_deployments(client, names, deployment)
    return [(each.key, each.image) for each in found if each.wanted]


@dataclass(frozen=True, slots=True, order=True)
class FoundDeployment:
    """A Deployment: the image of its first container, and the replicas that it should have, and has ready."""

    key: NamespacedName
    image: str
    wanted: int
    ready: int


async def find_deployments(
    client: Client, names: Iterable[str], deployment: str
) -> list[FoundDeployment]:
    """Return the Deployments of a component, except for those without containers.

    They have one of ``names`` in the label ``app.kubernetes.io/name``, or are called ``deployment``: users can label
    Deployments of theirs, which must not hide one without the label. One of them is in memory at a time.
    """
    labels = f"app.kubernetes.io/name in ({','.join(names)})"
    found = await client.select(DEPLOYMENT, _found, label_selector=labels)
    by_name = f"metadata.name={deployment}"
    found += await client.select(DEPLOYMENT, _found, field_selector=by_name)
    return sorted({each.key: each for each in found}.values())


def _found(deployment: Object) -> FoundDeployment | None:
    containers = deployment["spec"]["template"]["spec"].get("containers")
    if not containers:
        return None
    return FoundDeployment(
        key=key_of(deployment),
        image=text(containers[0].get("image"), _MAX_IMAGE),
        wanted=int(deployment["spec"].get("replicas", 1)),
        ready=int((deployment.get("status") or {}).get("readyReplicas") or 0),
    )


def version_findings(
    operators: Sequence[tuple[NamespacedName, str]], tested: str
) -> Iterator[Finding]:
    """Yield whether the first of ``operators``, Deployments with their images, have the ``tested`` version."""
    for key, image in operators[:_MAX_SHOWN]:
        yield version_finding(f"Deployment {key}", image, tested)
    left_out = len(operators) - _MAX_SHOWN
    if left_out > 0:
        yield warn(
            f"not shown: {left_out} more Deployments with the name or label of the component",
            "users can create these: keep those that an administrator has installed",
        )


def version_finding(where: str, image: str, tested: str) -> Finding:
    """Return whether ``image``, which runs in ``where``, has the ``tested`` version.

    An image without a version in its tag, such as one that is pinned by its digest, cannot be compared.
    """
    found = version_of(image)
    wanted = parse_version(tested)
    if found is None or wanted is None:
        return not_needed(
            f"{where}: the image {image} has no version in its tag; tested with {tested}"
        )
    if found[:2] == wanted[:2]:
        return ok(f"{where}: {tag_of(image)}, tested with {tested}")
    return warn(
        f"{where}: {tag_of(image)} is not tested, only {tested}", f"use {tested}, if you can"
    )


def tag_of(image: str) -> str:
    """Return the tag of ``image``; empty if there is none, or only a digest."""
    without_digest, _, _ = image.partition("@")
    _, _, name = without_digest.rpartition("/")
    _, _, tag = name.partition(":")
    return tag


def version_of(image: str) -> tuple[int, ...] | None:
    """Return the version in the tag of ``image``."""
    return parse_version(tag_of(image))


def parse_version(version: str) -> tuple[int, ...] | None:
    """Return the numbers of the version with which ``version`` begins."""
    matched = _VERSION.match(version)
    if matched is None:
        return None
    return tuple(int(part or 0) for part in matched.groups())
