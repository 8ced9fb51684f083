"""Runs controllers for other programs at ``/envtest/controllers``, as long as their connection is open.

The program ``kube-controller-manager`` of ``envtest assets`` uses it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from envtest.apimachinery.errors import StatusError, bad_request, method_not_allowed_here
from envtest.controllers import UnknownController, create_runner, selected_names
from envtest.endpoints.decoder import JSONError, load_json
from envtest.endpoints.request import Page, Request, Response
from envtest.formats.certificate_authority import CertificateAuthority, KeyPair
from envtest.http_server.received import Received
from envtest.http_server.responses import SentResponse, StreamResponse
from envtest.writes.server_core import Core

__all__ = ["CONTROLLERS_PATH", "controllers_page"]

CONTROLLERS_PATH: Final = "/envtest/controllers"
_FIELDS: Final = ("controllers", "ca", "signer")
_SIGNER_FIELDS: Final = {"certificate", "key"}


class _Request(NamedTuple):
    """What the body of a POST asks for."""

    names: tuple[str, ...]
    ca: bytes
    authority: CertificateAuthority | None


def controllers_page(core: Core, running: set[str]) -> Page:
    """Return the page ``/envtest/controllers``.

    POST with ``{"controllers": [NAME, ...], "ca": PEM, "signer": {"certificate": PEM, "key": PEM}}`` runs these
    controllers until the client disconnects. The response begins when they run. It is 409 while another client runs one
    of them, as ``running`` shows.
    """

    async def page(request: Request) -> Response | SentResponse | None:
        if request.path != CONTROLLERS_PATH:
            return None
        if request.method != "POST" or not isinstance(request.raw, Received):
            raise method_not_allowed_here()
        try:
            asked = _parse(load_json(await request.body()))
        except (JSONError, ValueError) as error:
            raise bad_request(str(error)) from None
        taken = sorted(running.intersection(asked.names))
        if taken:
            raise StatusError(
                409, "Conflict", f"another client runs the controllers {', '.join(taken)}", {}
            )
        return await _run(core, request.raw, asked, running)

    return page


def _parse(document: Any) -> _Request:
    """Return what the body of a POST asks for. Raises ValueError."""
    if not isinstance(document, dict) or document.keys() - set(_FIELDS):
        raise ValueError(f"the body must be a JSON object with the fields {', '.join(_FIELDS)}")
    names = document.get("controllers", [])
    ca = document.get("ca", "")
    signer = document.get("signer")
    if (
        not isinstance(ca, str)
        or not isinstance(names, list)
        or not all(isinstance(name, str) for name in names)
    ):
        raise ValueError("controllers: must be a list of names; ca: must be a string")
    authority = None
    if signer is not None:
        if (
            not isinstance(signer, dict)
            or signer.keys() != _SIGNER_FIELDS
            or not all(map(_is_text, signer.values()))
        ):
            raise ValueError("signer: must have the fields certificate and key, in PEM")
        authority = CertificateAuthority(
            KeyPair(signer["certificate"].encode(), signer["key"].encode())
        )
        if not authority.matches():
            raise ValueError("signer: the key does not belong to the certificate")
    return _Request(selected_names(names), ca.encode(), authority)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


async def _run(
    core: Core, received: Received, asked: _Request, running: set[str]
) -> StreamResponse:
    try:
        runner = create_runner(core, asked.names, ca=asked.ca, authority=asked.authority)
    except UnknownController as error:
        raise bad_request(str(error)) from None
    response = StreamResponse(200, [("Content-Type", "application/json")])
    running.update(asked.names)
    core.clock.settlers.append(runner.settle)
    runner.start()
    try:
        await response.prepare(received.connection)
        await response.write(orjson.dumps({"running": asked.names}) + b"\n")
        await received.connection.wait_lost()
    except ConnectionError:
        pass
    finally:
        core.clock.settlers.remove(runner.settle)
        running.difference_update(asked.names)
        await runner.stop()
    return response
