"""Only a reference with the kind of its owner proves who controls a pod."""

from __future__ import annotations

import pytest

from cfo.api.job_pods import controller_uid
from cfo.runtime import JOB, POD
from cfo.runtime.cache.entry import OwnerReference


@pytest.mark.parametrize(
    ("api_version", "kind", "expected"),
    [
        ("batch/v1", "Job", "u"),
        ("batch/v2", "Job", "u"),
        ("batch/v1", "CronJob", ""),
        ("batch/v1", "job", ""),
        ("v1", "Job", ""),
        ("batch", "Job", ""),
        ("batch.example.com/v1", "Job", ""),
    ],
)
def test_controller_counts_only_with_its_kind(api_version: str, kind: str, expected: str) -> None:
    reference = OwnerReference(api_version, kind, "j", "u", controller=True)
    assert controller_uid(reference, POD, JOB) == expected


def test_pod_without_controller() -> None:
    assert controller_uid(None, JOB) == ""
