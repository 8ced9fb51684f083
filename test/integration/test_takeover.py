"""Tests of the switch from the Go operator: its recorded objects are adopted, none is deleted or recreated.

A third of the recorded scenarios of a configuration run concurrently, each in its namespace. If a recording shows
several moments of a cluster's lifecycle, the switch is tested at each of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cfo.api.raycluster.names import FINALIZER, names_of
from cfo.runtime.objects.unstructured import Object, gvk_of, key_of, name_of
from envtest import EmbeddedControlPlane
from test.support.go_operator import (
    find_ray_cluster,
    recorded_lifecycles,
    recorded_scenarios,
    recreate,
)
from test.support.raycluster_environment import (
    Environment,
    kuberay_config,
    run_controllers,
    start_environment,
)
from test.support.raycluster_recordings import (
    PARTLY_RECONCILED,
    TESTED_CONFIGURATIONS,
    recorded_crds,
)
from test.support.recordings import RAYCLUSTER_RECORDINGS, load_raycluster
from test.support.sweeps import sampled

pytestmark = pytest.mark.skipif(
    not RAYCLUSTER_RECORDINGS.is_dir(), reason="no recordings next to the repository"
)

MOMENTS = 2
"""How many moments of each lifecycle are tested. (The only third one, of a resumed cluster, equals its first.)"""


WRITES = ("create", "update", "patch", "apply", "delete", "deletecollection")

Write = tuple[str, str, str]
"""Verb, resource and name."""


def expected_writes(case: str, recorded: list[Object], *, oauth: bool, mtls: bool) -> set[Write]:
    """Return the writes at the switch, each sent at most once (reasons: docs/differences.md, docs/migration.md)."""
    cluster = find_ray_cluster(recorded)
    names = names_of(cluster)
    writes = {
        ("patch", "networkpolicies", name) for name in (names.head_policy, names.workers_policy)
    }  # policyTypes
    if not oauth:
        writes.add(("patch", "rayclusters", name_of(cluster)))  # removes the finalizer
    if case == "preexisting-objects" and mtls:
        writes.add(("patch", "secrets", names.ca_secret))  # the adopted Secret contains no CA
    return writes


def count_writes(env: Environment, since: int, namespace: str) -> Counter[Write]:
    """Count the writes that concern the namespace, from audit event number ``since`` on.

    Events and the conditions of RayClusters are left out; ``test_counts`` counts these.
    """
    assert isinstance(env.plane, EmbeddedControlPlane)
    found: Counter[Write] = Counter()
    for event in list(env.plane.audit.events)[since:]:
        target = event.get("objectRef") or {}
        is_concerned = target.get("namespace") == namespace or (
            target.get("resource") == "clusterrolebindings" and namespace in target.get("name", "")
        )
        if event["verb"] in WRITES and is_concerned:
            if target["resource"] == "rayclusters" and event["responseStatus"]["code"] == 409:
                continue  # the conditions were written before the finalizer was removed; it is removed again
            assert event["responseStatus"]["code"] < 300, str(event)
            if target["resource"] != "events" and target.get("subresource") != "status":
                found[event["verb"], target["resource"], target.get("name", "")] += 1
    return found


def count_audit_events(env: Environment) -> int:
    """Return the number of audit events so far; 0 on a real control plane."""
    return len(env.plane.audit.events) if isinstance(env.plane, EmbeddedControlPlane) else 0


@pytest.mark.sweep
@pytest.mark.parametrize("configuration", TESTED_CONFIGURATIONS)
async def test_objects_of_go_operator_are_adopted(configuration: str) -> None:
    scenarios = recorded_scenarios(configuration)
    assert len(scenarios) > 25
    moments = dict(recorded_lifecycles(configuration, sampled(scenarios)))
    assert moments
    for moment in range(MOMENTS):
        await _take_over(
            configuration,
            {case: found[moment][1] for case, found in moments.items() if moment < len(found)},
        )


async def _take_over(configuration: str, recorded: dict[str, list[Object]]) -> None:
    """Recreate the recorded objects, run the operator twice, and compare writes and objects."""
    settings: dict[str, Any] = load_raycluster(f"{configuration}/kuberay-sample")["config"]
    config = kuberay_config(**settings["kuberay"])
    oauth = bool(settings["openshift"] and config.ray_dashboard_oauth_enabled)
    async with start_environment(*recorded_crds(openshift=settings["openshift"])) as env:
        created = {}
        for case, objects in recorded.items():
            await env.create_namespace(find_ray_cluster(objects)["metadata"]["namespace"])
            created[case] = await recreate(env.client, objects)
            assert len(created[case]) > 1 or PARTLY_RECONCILED & {case}
        since = count_audit_events(env)
        async with run_controllers(env, config):
            await env.wait_until_idle()
            requests = Counter(env.requests())
        assert [verb for verb, _ in requests if verb in ("delete", "deletecollection")] == []
        for case, objects in recorded.items():
            writes = expected_writes(case, objects, oauth=oauth, mtls=config.mtls_enabled)
            await _assert_kept(env, case, created[case], writes)
            if isinstance(env.plane, EmbeddedControlPlane):
                found = count_writes(env, since, find_ray_cluster(objects)["metadata"]["namespace"])
                assert set(found.values()) <= {1}, f"{case}: {found}"
                if case in PARTLY_RECONCILED:
                    assert writes <= set(found), case
                else:
                    assert set(found) == writes, case
        async with run_controllers(env, config):  # a second start writes nothing at all
            await env.wait_until_idle()
            assert [request for request in env.requests() if request[0] in WRITES] == []


async def _assert_kept(
    env: Environment, case: str, created: list[Object], writes: set[Write]
) -> None:
    """Assert that all objects still exist, and that those not among ``writes`` are unchanged."""
    names = {name for _, _, name in writes}
    for before in created:
        after = await env.client.get(gvk_of(before), key_of(before))
        description = f"{case}: {before['kind']} {name_of(before)}"
        assert after is not None, f"{description} was deleted"
        assert after["metadata"]["uid"] == before["metadata"]["uid"], description
        assert after["metadata"].get("ownerReferences") == before["metadata"].get(
            "ownerReferences"
        ), description
        if before["kind"] == "RayCluster":
            assert after["spec"] == before["spec"], description
            finalizers = after["metadata"].get("finalizers", [])
            keeps_finalizer = name_of(before) not in {
                name for _, kind, name in writes if kind == "rayclusters"
            }
            assert (FINALIZER in finalizers) is keeps_finalizer, description
        elif name_of(before) not in names and not (
            case in PARTLY_RECONCILED and before["kind"] in ("Route", "NetworkPolicy")
        ):
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], (
                description
            )
