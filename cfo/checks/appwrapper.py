"""The check of Kueue, which admits AppWrappers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cfo.checks.components import (
    InstalledCRD,
    read_custom_resource,
    read_deployments,
    version_findings,
)
from cfo.checks.findings import Finding, Subject, fail, not_needed, warn
from cfo.config.model import OperatorConfiguration
from cfo.runtime import NamespacedName


async def kueue(subject: Subject) -> Iterable[Finding]:
    """Check Kueue."""
    crd = await read_custom_resource(subject.client, "workloads.kueue.x-k8s.io")
    found = []
    if crd.exists:
        found = await read_deployments(subject.client, ["kueue"], "kueue-controller-manager")
    return check_kueue(crd, found, subject.configuration, subject.tested["Kueue"])


def check_kueue(
    crd: InstalledCRD,
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
        elif configuration.appwrapper.enabled and configuration.appwrapper.default_queue_name:
            yield warn(
                "not installed, so AppWrappers with the queue of appwrapper.defaultQueueName run without a quota",
                f"install Kueue {tested}, or unset appwrapper.defaultQueueName",
            )
        else:
            yield not_needed("not installed, and not needed by the configuration")
        return
    if not operators:
        yield warn(
            "the CRDs exist, but no Deployment of Kueue was found", f"install Kueue {tested}"
        )
    yield from version_findings(operators, tested)
