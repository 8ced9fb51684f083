"""Which modules a reader has to follow from a RayCluster on the watch to the request that applies its NetworkPolicy.

The operator runs in this process on a control plane. The trail of a review is in ``test/unit/webhooks``.
"""

from __future__ import annotations

from types import FrameType

import pytest

from envtest.api_client import APIClient
from hack.ways import EVENT_WAY
from test.support.module_trace import ModuleTrace, compare_with_drawing
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    RAY_CLUSTER_CRD,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

MAX_MODULES = 46


class EventTrace(ModuleTrace):
    """Records the modules that are entered from the watch line of a RayCluster to the request for its NetworkPolicy."""

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self.is_complete = False
        self._cluster = f'"name":"{cluster}"'.encode()

    def observe(self, module: str, frame: FrameType) -> None:
        """Record a call after that with the watch line, until that with the request."""
        function = frame.f_code.co_qualname  # type: ignore[attr-defined,unused-ignore]
        is_line = function == "Reflector._process_line"
        has_begun = bool(self.modules) or (is_line and self._cluster in frame.f_locals["line"])
        if self.is_complete or not has_begun:
            return
        super().observe(module, frame)
        if function == "Transport.request":
            self.is_complete = "/networkpolicies/" in frame.f_locals["request"].path


@pytest.mark.embedded(reason="the bytes of a watch line are compared")
async def test_watch_line_enters_few_modules_until_its_network_policy_is_applied(
    pytestconfig: pytest.Config,
) -> None:
    trace = EventTrace("second")
    async with start_environment(RAY_CLUSTER_CRD) as env:
        await env.create_namespace()
        async with (
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)),
            APIClient(env.plane) as api_client,  # its functions are not in modules of cfo
        ):
            await env.create(ray_cluster("first"))
            await env.wait_until_idle()
            path = "/apis/ray.io/v1/namespaces/ns/rayclusters"
            with trace:
                created = await api_client.request("POST", path, ray_cluster("second"))
                assert created.code == 201
                await eventually(lambda: _is_complete(trace), "the request")
    assert len(trace.modules) <= MAX_MODULES, " ".join(trace.modules)
    compare_with_drawing(EVENT_WAY, trace.modules, pytestconfig)


async def _is_complete(trace: EventTrace) -> bool:
    return trace.is_complete
