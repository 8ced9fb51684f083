"""Runs controllers for other programs at ``/envtest/controllers``, as long as their connection is open.

The program ``kube-controller-manager`` of ``envtest assets`` uses it.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from envtest.controllers import UnknownController, create_runner
from envtest.decoder import JSONError, load_json
from envtest.errors import StatusError, bad_request, method_not_allowed_here
from envtest.http import Page, Request, Response
from envtest.http_server.received import Received
from envtest.http_server.responses import SentResponse, StreamResponse
from envtest.server_core import Core

__all__ = ["CONTROLLERS_PATH", "controllers_page"]

CONTROLLERS_PATH: Final = "/envtest/controllers"
_FIELDS: Final = {"controllers", "ca"}


def controllers_page(core: Core, running: set[str]) -> Page:
    """Return the page ``/envtest/controllers``.

    POST with ``{"controllers": [NAME, ...], "ca": PEM}`` runs these controllers until the client disconnects. The
    response begins when they run. It is 409 while another client runs one of them, as ``running`` shows.
    """

    async def page(request: Request) -> Response | SentResponse | None:
        if request.path != CONTROLLERS_PATH:
            return None
        if request.method != "POST" or not isinstance(request.raw, Received):
            raise method_not_allowed_here()
        try:
            names, ca = _parse(load_json(await request.body()))
        except (JSONError, ValueError) as error:
            raise bad_request(str(error)) from None
        taken = sorted(running.intersection(names))
        if taken:
            raise StatusError(409, "Conflict", f"another client runs the controllers {', '.join(taken)}", {})
        return await _run(core, request.raw, names, ca, running)

    return page


def _parse(document: Any) -> tuple[list[str], bytes]:
    """Return the names and the CA of the body of a POST. Raises ValueError."""
    if not isinstance(document, dict) or document.keys() - _FIELDS:
        raise ValueError(f"the body must be a JSON object with the fields {', '.join(sorted(_FIELDS))}")
    names, ca = document.get("controllers", []), document.get("ca", "")
    if not isinstance(ca, str) or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("controllers: must be a list of names; ca: must be a string")
    return names, ca.encode()


async def _run(core: Core, received: Received, names: list[str], ca: bytes, running: set[str]) -> StreamResponse:
    try:
        runner = create_runner(core, names, ca=ca)
    except UnknownController as error:
        raise bad_request(str(error)) from None
    response = StreamResponse(200, [("Content-Type", "application/json")])
    settle = core.clock.settle

    async def settle_all() -> None:
        await settle()
        await runner.settle()

    running.update(names)
    core.clock.settle = settle_all
    runner.start()
    try:
        await response.prepare(received.connection)
        await response.write(orjson.dumps({"running": names}) + b"\n")
        await received.connection.wait_lost()
    except ConnectionError:
        pass
    finally:
        core.clock.settle = settle
        running.difference_update(names)
        await runner.stop()
    return response
