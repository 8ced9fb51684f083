"""Commands that read a cluster: objects of tenants neither end them, nor slow them down, nor control the terminal."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cfo.console.migrate.raycluster.planning import Options
from cfo.console.migrate.raycluster.targets import Target
from test.fuzz.checks.console import (
    CLUSTERS,
    CONFIG_MAPS,
    CONFIGURATIONS,
    DEPLOYMENTS,
    LEASES,
    PODS,
    STRINGS,
    check_doctor,
    check_migration,
    check_obstacles,
)
from test.fuzz.profiles import fuzz
from test.support.migration import TO_KUBERAY


@fuzz(
    0.04,
    st.lists(DEPLOYMENTS, max_size=2),
    st.lists(LEASES, max_size=2),
    st.lists(CONFIGURATIONS, max_size=2),
)
def test_each_operator_is_an_obstacle_or_none(
    deployments: Any, leases: Any, configurations: Any
) -> None:
    check_obstacles(deployments, leases, configurations)


@fuzz(0.04, CLUSTERS, st.sampled_from([TO_KUBERAY, Options(Target.RHOAI, allow_downtime=True)]))
def test_each_stored_raycluster_has_a_migration_plan(cluster: Any, options: Options) -> None:
    check_migration(cluster, options)


@fuzz(0.06, DEPLOYMENTS, st.lists(PODS, max_size=2), CONFIG_MAPS, STRINGS)
def test_each_installation_has_findings(
    deployment: Any, pods: Any, config_map: Any, text: str
) -> None:
    check_doctor(deployment, pods, config_map, text)
