"""The pytest fixture ``kube_client``: a :class:`~cfo.runtime.client.client.Client` for the test control plane.

It requires the fixture ``control_plane``, which ``envtest`` provides, and pytest-asyncio. The runtime is not imported
until a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cfo.runtime.client.client import Client


async def _kube_client(control_plane: Any) -> AsyncIterator[Client]:
    """Provide a client of :mod:`cfo.runtime` for asynchronous tests (pytest-asyncio)."""
    from cfo.runtime.client.client import connect
    from cfo.runtime.client.config import ClientConfig

    async with connect(
        ClientConfig.for_control_plane(control_plane), field_manager="test"
    ) as client:
        yield client


try:
    import pytest_asyncio
except ImportError:  # pytest-asyncio is optional

    @pytest.fixture
    def kube_client() -> None:
        """Fail, because asynchronous fixtures require pytest-asyncio."""
        pytest.fail("the fixture kube_client is asynchronous: install pytest-asyncio")

else:
    _async_kube_client = pytest_asyncio.fixture(_kube_client, name="kube_client")
