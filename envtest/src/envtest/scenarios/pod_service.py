"""Connects the API server to the pods of a scenario; what answers them is imported with the first request."""

from __future__ import annotations

from collections.abc import Mapping

from envtest.apimachinery.objects import Object
from envtest.endpoints.request import Request, Response
from envtest.http_server.responses import SentResponse
from envtest.registry.resource import RequestContext
from envtest.scenarios.scenario import Scenario
from envtest.writes.server_core import Core

__all__ = ["ScenarioPods"]


class ScenarioPods:
    """The pods of a scenario as a :class:`envtest.writes.server_core.PodService`."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    async def connect(
        self, core: Core, request: Request, ctx: RequestContext, pod: Object
    ) -> SentResponse:
        """Answer exec, attach or portforward. Raises StatusError if the container does not run."""
        from envtest.scenarios.connections import serve

        return await serve(core, self._scenario, request, ctx, pod)

    async def send_log(
        self, core: Core, request: Request, pod: Object, numbers: Mapping[str, int | None]
    ) -> Response | SentResponse:
        """Answer GET of a log. Raises StatusError if the container has none."""
        from envtest.scenarios.connections import send_log

        return await send_log(core, self._scenario, request, pod, numbers)
