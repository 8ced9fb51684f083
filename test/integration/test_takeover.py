"""The switch from the Go operator: what it made (recorded) is taken over, and nothing is deleted or made anew.

All recorded scenarios of a configuration at once, each in its namespace; where a recording shows several moments of a
cluster's life, each of them is a moment at which somebody may switch.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cfo.api.raycluster.naming import names_of
from cfo.controllers.raycluster.oauth import FINALIZER
from cfo.runtime.objects import Object, gvk_of, key_of, name_of
from envtest.embedded import EmbeddedControlPlane
from test.support.go_operator import find_ray_cluster, recorded_lifecycles, recreate
from test.support.raycluster_environment import Environment, kuberay_config, run_controllers, start_environment
from test.support.raycluster_recordings import CONFIGURATIONS, PARTLY_RECONCILED, recorded_crds
from test.support.recordings import RAYCLUSTER_RECORDINGS, load_raycluster

pytestmark = pytest.mark.skipif(not RAYCLUSTER_RECORDINGS.is_dir(), reason="no recordings beside the repository")

MOMENTS = 2
"""Of each recorded life. (The only third one, of a cluster that was resumed, shows what the first does.)"""


WRITES = ("create", "update", "patch", "apply", "delete", "deletecollection")

Write = tuple[str, str, str]
"""Verb, kind in the plural, name."""


def expected(case: str, recorded: list[Object], *, oauth: bool, mtls: bool) -> set[Write]:
    """What is written at the switch, each once at the most; docs/differences.md and docs/operations.md say why."""
    cluster = find_ray_cluster(recorded)
    names = names_of(cluster)
    writes = {("patch", "networkpolicies", name) for name in (names.head_policy, names.workers_policy)}  # policyTypes
    if not oauth:
        writes.add(("patch", "rayclusters", name_of(cluster)))  # the finalizer goes
    if case == "preexisting-objects" and mtls:
        writes.add(("patch", "secrets", names.ca_secret))  # what it took over holds no authority
    return writes


def written(here: Environment, since: int, namespace: str) -> Counter[Write]:
    """What was written since then that concerns the namespace, but for Events."""
    assert isinstance(here.plane, EmbeddedControlPlane)
    found: Counter[Write] = Counter()
    for event in list(here.plane.audit.events)[since:]:
        target = event.get("objectRef") or {}
        concerned = target.get("namespace") == namespace or (
            target.get("resource") == "clusterrolebindings" and namespace in target.get("name", "")
        )
        if event["verb"] in WRITES and concerned:
            assert event["responseStatus"]["code"] < 300, event
            if target["resource"] != "events":
                found[event["verb"], target["resource"], target.get("name", "")] += 1
    return found


def audited(here: Environment) -> int:
    return len(here.plane.audit.events) if isinstance(here.plane, EmbeddedControlPlane) else 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
async def test_what_the_go_operator_made_is_taken_over(configuration: str) -> None:
    moments = dict(recorded_lifecycles(configuration))
    assert len(moments) > 25
    for moment in range(MOMENTS):
        await _take_over(
            configuration, {case: found[moment][1] for case, found in moments.items() if moment < len(found)}
        )


async def _take_over(configuration: str, recorded: dict[str, list[Object]]) -> None:
    settings: dict[str, Any] = load_raycluster(f"{configuration}/kuberay-sample")["config"]
    config = kuberay_config(**settings["kuberay"])
    oauth = bool(settings["openshift"] and config.ray_dashboard_oauth_enabled)
    async with start_environment(*recorded_crds(openshift=settings["openshift"])) as here:
        made = {}
        for case, objects in recorded.items():
            await here.create_namespace(find_ray_cluster(objects)["metadata"]["namespace"])
            made[case] = await recreate(here.client, objects)
            assert len(made[case]) > 1 or PARTLY_RECONCILED & {case}
        since = audited(here)
        async with run_controllers(here, config):
            await here.wait_until_idle()
            requests = Counter(here.requests())
        assert [verb for verb, _ in requests if verb in ("delete", "deletecollection")] == []
        for case, objects in recorded.items():
            writes = expected(case, objects, oauth=oauth, mtls=config.mtls_enabled)
            await _kept(here, case, made[case], writes)
            if isinstance(here.plane, EmbeddedControlPlane):
                found = written(here, since, find_ray_cluster(objects)["metadata"]["namespace"])
                assert set(found.values()) <= {1}, f"{case}: {found}"
                if case in PARTLY_RECONCILED:
                    assert writes <= set(found), case
                else:
                    assert set(found) == writes, case
        async with run_controllers(here, config):  # and a second start writes nothing at all
            await here.wait_until_idle()
            assert [each for each in here.requests() if each[0] in WRITES] == []


async def _kept(here: Environment, case: str, made: list[Object], writes: set[Write]) -> None:
    """Everything is still there; what is not among ``writes`` is as it was."""
    names = {name for _, _, name in writes}
    for before in made:
        after = await here.client.get(gvk_of(before), key_of(before))
        what = f"{case}: {before['kind']} {name_of(before)}"
        assert after is not None, f"{what} is gone"
        assert after["metadata"]["uid"] == before["metadata"]["uid"], what
        assert after["metadata"].get("ownerReferences") == before["metadata"].get("ownerReferences"), what
        if before["kind"] == "RayCluster":
            assert after["spec"] == before["spec"], what
            finalizers = after["metadata"].get("finalizers", [])
            kept = name_of(before) not in {name for _, kind, name in writes if kind == "rayclusters"}
            assert (FINALIZER in finalizers) is kept, what
        elif name_of(before) not in names and not (
            case in PARTLY_RECONCILED and before["kind"] in ("Route", "NetworkPolicy")
        ):
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], what
