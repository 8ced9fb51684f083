"""Which modules a reader has to follow from a RayCluster on the watch to the request that applies its NetworkPolicy.

The operator runs in this process on a control plane. The trail of a review is in ``test/unit/webhooks``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest

from envtest.api_client import APIClient
from hack.generate.drawings import EVENT, WRITE, Step
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    RAY_CLUSTER_CRD,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

MAX_MODULES = 42


class Trail:
    """Records the modules of ``cfo`` that are entered from the watch line of a RayCluster to its NetworkPolicy.

    ``entered`` are the modules in the order of the calls, without immediate repetitions.
    """

    def __init__(self, cluster: str) -> None:
        self.entered: list[str] = []
        self.is_complete = False
        self._cluster = f'"name":"{cluster}"'.encode()
        self._has_begun = False

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Record the module of a function that is called; it is an argument of :func:`sys.setprofile`."""
        module = str(frame.f_globals.get("__name__", ""))
        if event != "call" or self.is_complete or not module.startswith("cfo."):
            return
        function = frame.f_code.co_qualname  # type: ignore[attr-defined,unused-ignore]
        if function == "Reflector._process_line":
            self._has_begun = self._has_begun or self._cluster in frame.f_locals["line"]
        if not self._has_begun:
            return
        if not self.entered or self.entered[-1] != module:
            self.entered.append(module)
        if function == "Transport.request":
            self.is_complete = "/networkpolicies/" in frame.f_locals["request"].path


def follows(entered: Sequence[str], steps: Sequence[Step]) -> str:
    """Return the first of ``steps`` that was not entered after the one before it; empty if all were."""
    remaining = iter(entered)
    for step in steps:
        if not any(step.contains(module) for module in remaining):
            return step.name or step.package
    return ""


@pytest.mark.embedded(reason="the bytes of a watch line are compared")
async def test_watch_line_enters_few_modules_until_its_network_policy_is_applied() -> None:
    trail = Trail("second")
    async with start_environment(RAY_CLUSTER_CRD) as env:
        await env.create_namespace()
        async with (
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)),
            APIClient(env.plane) as api_client,  # its functions are not in modules of cfo
        ):
            await env.create(ray_cluster("first"))
            await env.wait_until_idle()
            path = "/apis/ray.io/v1/namespaces/ns/rayclusters"
            before = sys.getprofile()
            sys.setprofile(trail.profile)
            try:
                created = await api_client.request("POST", path, ray_cluster("second"))
                assert created.code == 201
                await eventually(lambda: _is_complete(trail), "the request")
            finally:
                sys.setprofile(before)
    modules = list(dict.fromkeys(trail.entered))
    assert len(modules) <= MAX_MODULES, " ".join(modules)
    assert follows(trail.entered, [*EVENT, *reversed(WRITE)]) == "", "docs/images/ways.svg"


async def _is_complete(trail: Trail) -> bool:
    return trail.is_complete
