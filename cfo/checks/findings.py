"""The results of checks and how they are printed, what features' checks share, and the check of Kueue."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from cfo.api.reading import text
from cfo.config.model import OperatorConfiguration
from cfo.runtime import DEPLOYMENT, APIError, Client, NamespacedName, name_of, namespace_of
from cfo.runtime.objects import CUSTOM_RESOURCE_DEFINITION

_MAX_LINE: Final = 10_000
_MANIFESTS: Final = "cfo manifests"
APPLY: Final = (
    f"apply the manifests, with your other options: {_MANIFESTS} | kubectl apply --server-side -f -"
)
"""A remedy, to which :func:`with_options` adds what the installation needs."""


class Status(StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; ``remedy`` is empty if there is nothing to do."""

    status: Status
    message: str
    remedy: str = ""


def ok(message: str) -> Finding:
    """Return a finding that everything is as it should be."""
    return Finding(Status.OK, text(message, _MAX_LINE))


def warn(message: str, remedy: str) -> Finding:
    """Return a finding that something can fail, or soon will."""
    return Finding(Status.WARN, text(message, _MAX_LINE), text(remedy, _MAX_LINE))


def fail(message: str, remedy: str) -> Finding:
    """Return a finding that something does not work."""
    return Finding(Status.FAIL, text(message, _MAX_LINE), text(remedy, _MAX_LINE))


def skip(message: str, remedy: str = "") -> Finding:
    """Return a finding that something could not be checked, or does not have to be."""
    return Finding(Status.SKIP, text(message, _MAX_LINE), text(remedy, _MAX_LINE))


Findings = Mapping[str, Sequence[Finding]]
"""The findings by the name of their check."""


def with_options(findings: Findings, namespace: str, features: Iterable[str]) -> Findings:
    """Add ``namespace`` and the components of ``features`` to the command ``cfo manifests`` in all remedies."""
    command = " ".join(
        [
            _MANIFESTS,
            "--namespace",
            shlex.quote(namespace),
            *(f"--with {name}" for name in features),
        ]
    )
    return {
        check: [
            replace(finding, remedy=finding.remedy.replace(_MANIFESTS, command))
            for finding in found
        ]
        for check, found in findings.items()
    }


def has_failed(findings: Findings) -> bool:
    """Return whether a check failed; a warning is not a failure."""
    return _counts(findings)[Status.FAIL] > 0


def lines(findings: Findings) -> Iterator[str]:
    """Yield the text output: one line for each finding, its remedy below it, and a summary."""
    width = max(map(len, findings), default=0)
    for check, found in findings.items():
        for finding in found:
            yield f"{finding.status:4}  {check:{width}}  {finding.message}"
            if finding.remedy:
                yield f"{'':4}  {'':{width}}  -> {finding.remedy}"
    counts = _counts(findings)
    yield ", ".join(f"{counts[status]} {status}" for status in Status)


def document(findings: Findings) -> dict[str, Any]:
    """Return the JSON output."""
    counts = _counts(findings)
    return {
        "checks": [
            {"check": check, **asdict(finding)}
            for check, found in findings.items()
            for finding in found
        ],
        "summary": {str(status): counts[status] for status in Status},
    }


def _counts(findings: Findings) -> Counter[Status]:
    return Counter(finding.status for found in findings.values() for finding in found)


_VERSION: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Subject:
    """The operator that is checked: its namespace, and its configuration or why that was not read.

    ``tested`` are the versions of other components with which this version was tested, by name.
    """

    client: Client
    namespace: str
    configuration: OperatorConfiguration
    config_error: APIError | None
    tested: Mapping[str, str]


Check = Callable[[Subject], Awaitable[Iterable[Finding]]]
"""A check of a feature; it changes nothing, and raises the errors of :class:`cfo.runtime.Client`."""


@dataclass(frozen=True, slots=True)
class CustomResource:
    """A CRD: whether it exists and is established, and the versions that it serves."""

    exists: bool
    established: bool = False
    served: tuple[str, ...] = ()


async def read_custom_resource(client: Client, name: str) -> CustomResource:
    """Read the CRD ``name``."""
    crd = await client.get(CUSTOM_RESOURCE_DEFINITION, NamespacedName("", name), live=True)
    if crd is None:
        return CustomResource(exists=False)
    conditions = (crd.get("status") or {}).get("conditions") or ()
    established = any(
        each.get("type") == "Established" and each.get("status") == "True" for each in conditions
    )
    served = tuple(each["name"] for each in crd["spec"].get("versions") or () if each.get("served"))
    return CustomResource(exists=True, established=established, served=served)


async def read_deployments(
    client: Client, names: Iterable[str], deployment: str
) -> list[tuple[NamespacedName, str]]:
    """Return the Deployments whose label ``app.kubernetes.io/name`` is one of ``names``, or that are called
    ``deployment``, with the image of their first container."""
    selector = f"app.kubernetes.io/name in ({','.join(names)})"
    found = await client.list(DEPLOYMENT, label_selector=selector, live=True)
    found = found or await client.list(
        DEPLOYMENT, field_selector=f"metadata.name={deployment}", live=True
    )
    return [
        (NamespacedName(namespace_of(each), name_of(each)), str(containers[0].get("image") or ""))
        for each in found
        if (containers := each["spec"]["template"]["spec"].get("containers"))
    ]


def version_finding(where: str, image: str, tested: str) -> Finding:
    """Return whether ``image``, which runs in ``where``, has the ``tested`` version."""
    found, wanted = version_of(image), parse_version(tested)
    if found is None or wanted is None:
        return skip(f"{where}: the image {image} has no version in its tag; tested with {tested}")
    if found[:2] == wanted[:2]:
        return ok(f"{where}: {tag_of(image)}, tested with {tested}")
    return warn(
        f"{where}: {tag_of(image)} is not tested, only {tested}", f"use {tested}, if you can"
    )


def tag_of(image: str) -> str:
    """Return the tag of ``image``; empty if there is none, or only a digest."""
    _, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    return tag


def version_of(image: str) -> tuple[int, ...] | None:
    """Return the version in the tag of ``image``."""
    return parse_version(tag_of(image))


def parse_version(version: str) -> tuple[int, ...] | None:
    """Return the numbers of the version with which ``version`` begins."""
    matched = _VERSION.match(version)
    return tuple(int(part or 0) for part in matched.groups()) if matched else None


async def kueue(subject: Subject) -> Iterable[Finding]:
    """Check Kueue."""
    crd = await read_custom_resource(subject.client, "workloads.kueue.x-k8s.io")
    found = (
        await read_deployments(subject.client, ["kueue"], "kueue-controller-manager")
        if crd.exists
        else []
    )
    return check_kueue(crd, found, subject.configuration, subject.tested["Kueue"])


def check_kueue(
    crd: CustomResource,
    operators: Sequence[tuple[NamespacedName, str]],
    configuration: OperatorConfiguration,
    tested: str,
) -> Iterator[Finding]:
    """Check Kueue: whether it is installed if the configuration needs it, and its version."""
    if not crd.exists:
        if configuration.appwrapper.uses_kueue:
            remedy = (
                f"install Kueue {tested}, or unset appwrapper.kueueIntegration and slackQueueName"
            )
            yield fail(
                "the CRD workloads.kueue.x-k8s.io does not exist, but the configuration needs it",
                remedy,
            )
        else:
            yield skip("not installed, and not needed by the configuration")
        return
    if not operators:
        yield warn(
            "the CRDs exist, but no Deployment of Kueue was found", f"install Kueue {tested}"
        )
    for key, image in operators:
        yield version_finding(f"Deployment {key}", image, tested)
