"""Counts of what the server does, which do not depend on the load of the machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from types import FrameType

import envtest
from envtest import ControlPlane
from envtest.api_client import APIClient, Watch
from test.support.config_maps import CONFIG_MAPS, config_map


@contextmanager
def calls_of_the_server() -> Iterator[Counter[str]]:
    """Count function calls in this package; a coroutine that continues counts again."""
    calls: Counter[str] = Counter()
    package = envtest.__path__[0]

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(package)
            and not code.co_filename.endswith("api_client.py")
        ):
            calls[code.co_qualname] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def test_event_is_encoded_once_and_written_once_for_each_watch() -> None:
    """No task is woken: the watches are served in one turn of the event loop, with few calls for each."""
    counts = []
    opened: list[Watch] = []
    async with (
        ControlPlane.embedded(controllers=()) as plane,
        APIClient(plane) as api,
        AsyncExitStack() as stack,
    ):
        for watches in (10, 30):
            created = await api.post(CONFIG_MAPS, config_map(f"before-{watches}"))
            version = created.body["metadata"]["resourceVersion"]
            while len(opened) < watches:
                opened.append(
                    await stack.enter_async_context(
                        api.watch(CONFIG_MAPS, {"resourceVersion": version})
                    )
                )
            with calls_of_the_server() as calls:
                await api.post(CONFIG_MAPS, config_map(f"seen-{watches}"))
            for watch in opened:
                while (await watch.event())["object"]["metadata"]["name"] != f"seen-{watches}":
                    pass
            assert (calls["encode_chunk"], calls["Watcher.next_batch"]) == (1, 0)
            assert calls["TLSTransport.write"] == watches + 1  # and the response
            counts.append(calls.total())
    assert counts[1] - counts[0] <= 20 * 10
