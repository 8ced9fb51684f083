"""What pods must request so that they use the quota that was admitted for them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.pod_requests import (
    amounts_of,
    has_requests,
    least_requests,
    requests_of_spec,
    with_default_requests,
)

GPU = "nvidia.com/gpu"
SLICE = "nvidia.com/mig-1g.5gb"
RENAMED = "mig.das.com/1g.5gb"
ADMITTED = {"cpu": "4", "memory": "8Gi", GPU: "2", "ephemeral-storage": "1Gi"}


@pytest.mark.parametrize(
    ("requested", "is_enough"),
    [
        pytest.param(ADMITTED, True, id="what was admitted"),
        pytest.param({"cpu": "1", "memory": "2Gi", GPU: "2"}, True, id="overcommitted"),
        pytest.param({"cpu": "999m", "memory": "8Gi", GPU: "2"}, False, id="less CPU"),
        pytest.param({"cpu": "4", "memory": "2047Mi", GPU: "2"}, False, id="less memory"),
        pytest.param({"cpu": "4", "memory": "8Gi", GPU: "1"}, False, id="fewer devices"),
        pytest.param({"cpu": "4", "memory": "8Gi", "amd.com/gpu": "2"}, False, id="other devices"),
    ],
)
def test_pods_use_a_quota_with_all_devices_and_a_quarter_of_cpu_and_memory(
    requested: dict[str, str], is_enough: bool
) -> None:
    least = least_requests(amounts_of(ADMITTED), {"cpu", "memory", GPU})
    assert has_requests(amounts_of(requested), least) is is_enough


@pytest.mark.parametrize(
    ("requested", "is_enough"),
    [
        pytest.param({SLICE: "2"}, True, id="as admitted"),
        pytest.param({RENAMED: "2"}, True, id="renamed by a webhook"),
        pytest.param({RENAMED: "1"}, False, id="fewer"),
        pytest.param({"mig.das.com/2g.10gb": "2"}, False, id="another profile"),
    ],
)
def test_slices_of_devices_count_by_their_profile(
    requested: dict[str, str], is_enough: bool
) -> None:
    least = least_requests(amounts_of({SLICE: "2"}), {SLICE})
    assert has_requests(amounts_of(requested), least) is is_enough


EIGHT = {"cpu": "8", "memory": "8Gi"}


@pytest.mark.parametrize(
    ("containers", "of_pod", "expected"),
    [
        ([{"limits": EIGHT}], {}, {"cpu": 8000, "memory": 8 * 2**30 * 1000}),
        ([{"limits": {"cpu": "8"}, "requests": {"cpu": "1"}}], {}, {"cpu": 1000}),
        ([{}], {"limits": {"cpu": "8"}}, {"cpu": 8000}),
        (
            [{"requests": {"cpu": "100m"}}, {"limits": {"cpu": "50m"}}],
            {"limits": EIGHT},
            {"cpu": 150, "memory": 8 * 2**30 * 1000},
        ),
        (
            [{"requests": {"cpu": "1"}}],
            {"limits": EIGHT, "requests": EIGHT},
            {"cpu": 8000, "memory": 8 * 2**30 * 1000},
        ),
        ([{"requests": {"cpu": "0"}}], {"limits": {"cpu": "8"}}, {}),
    ],
    ids=["limits", "requests", "limits of the pod", "both", "requests of the pod", "requests of 0"],
)
def test_requests_that_are_not_set_are_those_of_the_api_server(
    containers: list[dict[str, Any]], of_pod: dict[str, Any], expected: dict[str, int]
) -> None:
    """Those of kube-apiserver 1.36 (``SetDefaults_Pod``)."""
    spec = {"containers": [{"name": "c", "resources": each} for each in containers]}
    spec |= {"resources": of_pod} if of_pod else {}
    before = copy.deepcopy(spec)
    assert requests_of_spec(spec) == expected
    explicit = with_default_requests(spec)
    assert requests_of_spec(explicit) == expected
    assert spec == before
    resources = [each["resources"] for each in explicit["containers"]]
    for each in (*resources, explicit.get("resources") or {}):
        assert set(each.get("limits") or ()) <= set(each.get("requests") or ())
