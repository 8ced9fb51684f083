"""Tests that a tenant does not choose the nodes of pods that a queue admitted with a flavor."""

from __future__ import annotations

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import NamespacedName, uid_of
from test.support.appwrapper_environment import (
    configuration,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.kueue_queue import FLAVOR, PodQueue, kueue_crds
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)


async def test_pods_of_a_retry_have_the_admitted_flavor() -> None:
    """The tenant changes ``podSetInfos``, as it can together with ``spec.suspend``, and lets the pod fail."""
    async with (
        start_appwrapper_environment(*kueue_crds()) as environment,
        run_appwrapper_controllers(environment, configuration(kueueIntegration=True)),
    ):
        await environment.create_namespace()
        flavor = {"metadata": {"name": "gold"}, "spec": {"nodeLabels": {"pool": "gold"}}}
        await environment.create({"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind, **flavor})
        queued = wrapper(pod())
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
        await environment.create(queued)
        queue = PodQueue(environment, 1)
        await eventually(queue.workloads, "a Workload")
        await queue.schedule()
        running = await environment.wait_for_phase("Running")
        first = await environment.get(POD, "p")
        components = running["spec"]["components"]
        components[0]["podSetInfos"] = [{"nodeSelector": {"pool": "reserved"}}]
        patch = {"spec": {"components": components}}
        await environment.client.patch(APPWRAPPER, NamespacedName("ns", "w"), patch)
        await environment.set_pod_status("p", "Failed", exit_code=1)

        async def is_recreated() -> bool:
            found = await environment.find(POD, "p")
            return found is not None and uid_of(found) != uid_of(first)

        await eventually(is_recreated, "the pod of the retry")
        second = await environment.get(POD, "p")
        assert second["spec"]["nodeSelector"] == {"pool": "gold"}
        assert second["metadata"]["labels"] == first["metadata"]["labels"]
