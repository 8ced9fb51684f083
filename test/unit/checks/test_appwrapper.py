"""The check of Kueue: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cfo.checks.appwrapper import check_kueue
from cfo.checks.components import InstalledCRD
from cfo.checks.findings import Finding
from cfo.config.document import parse
from cfo.runtime import NamespacedName

CRD = InstalledCRD(exists=True, established=True, served=("v1", "v1alpha1"))


def states(findings: Iterable[Finding]) -> list[str]:
    return [str(finding.status) for finding in findings]


@pytest.mark.parametrize(
    ("document", "crd", "images", "expected"),
    [
        ("", InstalledCRD(exists=False), [], ["skip"]),
        (
            "appwrapper: {enabled: true, kueueIntegration: true}",
            InstalledCRD(exists=False),
            [],
            ["fail"],
        ),
        (
            "appwrapper: {enabled: true, slackQueueName: a}",
            InstalledCRD(exists=False),
            [],
            ["fail"],
        ),
        ("appwrapper: {kueueIntegration: true}", InstalledCRD(exists=False), [], ["skip"]),
        (
            "appwrapper: {enabled: true, defaultQueueName: team}",
            InstalledCRD(exists=False),
            [],
            ["warn"],
        ),
        ("appwrapper: {defaultQueueName: team}", InstalledCRD(exists=False), [], ["skip"]),
        ("", CRD, [], ["warn"]),
        ("", CRD, ["kueue:v0.19.0"], ["ok"]),
    ],
)
def test_kueue_is_installed_if_it_is_needed(
    document: str, crd: InstalledCRD, images: list[str], expected: list[str]
) -> None:
    operators = [
        (NamespacedName("kueue-system", "kueue-controller-manager"), image) for image in images
    ]
    assert states(check_kueue(crd, operators, parse(document).configuration, "v0.19.2")) == expected
