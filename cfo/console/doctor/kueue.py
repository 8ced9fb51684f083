"""The check of Kueue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cfo.config import OperatorConfiguration
from cfo.console.doctor.components import (
    CustomResource,
    Subject,
    component_finding,
    read_custom_resource,
    read_deployments,
)
from cfo.console.doctor.findings import Finding, fail, skip, warn
from cfo.runtime import NamespacedName

__all__ = ["check_kueue", "kueue"]


async def kueue(subject: Subject) -> Iterable[Finding]:
    """Check Kueue."""
    crd = await read_custom_resource(subject.client, "workloads.kueue.x-k8s.io")
    found = await read_deployments(subject.client, ["kueue"], "kueue-controller-manager") if crd.exists else []
    return check_kueue(crd, found, subject.configuration, subject.tested["Kueue"])


def check_kueue(
    crd: CustomResource,
    operators: Sequence[tuple[NamespacedName, str]],
    configuration: OperatorConfiguration,
    tested: str,
) -> Iterator[Finding]:
    """Check Kueue: whether it is installed if the configuration needs it, and its version."""
    check, wrappers = "kueue", configuration.appwrapper
    needed = wrappers.enabled and (wrappers.kueue_integration or bool(wrappers.slack_queue_name))
    if not crd.exists:
        if needed:
            remedy = f"install Kueue {tested}, or unset appwrapper.kueueIntegration and slackQueueName"
            yield fail(check, "the CRD workloads.kueue.x-k8s.io does not exist, but the configuration needs it", remedy)
        else:
            yield skip(check, "not installed, and not needed by the configuration")
        return
    if not operators:
        yield warn(check, "the CRDs exist, but no Deployment of Kueue was found", f"install Kueue {tested}")
    for key, image in operators:
        yield component_finding(check, f"Deployment {key}", image, tested)
