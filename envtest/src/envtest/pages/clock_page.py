"""Serves the clock of the plane to other programs at ``/envtest/clock``."""

from __future__ import annotations

from typing import Any

from envtest.apimachinery.clock import Clock
from envtest.apimachinery.errors import bad_request, method_not_allowed_here
from envtest.endpoints.decoder import JSONError, load_json
from envtest.endpoints.request import Page, Request, Response, json_response

__all__ = ["CLOCK_PATH", "clock_page"]

CLOCK_PATH = "/envtest/clock"


def clock_page(clock: Clock) -> Page:
    """Return the page ``/envtest/clock``: GET returns the time, POST with ``{"advance": SECONDS}`` moves it forward."""

    async def page(request: Request) -> Response | None:
        if request.path != CLOCK_PATH:
            return None
        if request.method == "POST":
            try:
                await clock.advance(_seconds(load_json(await request.body())))
            except (JSONError, ValueError) as error:
                raise bad_request(str(error)) from None
        elif request.method != "GET":
            raise method_not_allowed_here()
        return json_response({"now": clock.now().isoformat(), "offsetSeconds": clock.offset})

    return page


def _seconds(document: Any) -> float:
    """Return the seconds of the body of a POST. Raises ValueError."""
    if not isinstance(document, dict) or set(document) != {"advance"}:
        raise ValueError('the body must be a JSON object with the field "advance", in seconds')
    seconds = document["advance"]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ValueError("advance: must be a number of seconds")  # noqa: TRY004 - the caller handles one exception
    return float(seconds)
