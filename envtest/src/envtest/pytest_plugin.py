"""Pytest fixtures that provide a Kubernetes API server, for operators in any language and framework.

The control plane is started once for the session, on its own thread, so that synchronous tests, asynchronous tests and
programs under test can all use it; each test gets its own namespace. It is the embedded control plane, or the real one
if ``$KUBEBUILDER_ASSETS`` is set; ``--control-plane`` overrides this.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from envtest.api_client import APIClient
    from envtest.base import BaseControlPlane
    from envtest.local_webhooks import LocalWebhooks
    from envtest.manifests import Manifests
    from envtest.threaded import ThreadedControlPlane

MARKER = "real_control_plane"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--control-plane``."""
    group = parser.getgroup("control plane", "Kubernetes control planes for tests (envtest)")
    group.addoption(
        "--control-plane",
        choices=("auto", "embedded", "real"),
        default="auto",
        help="which control plane the fixtures start; auto: the real one if $KUBEBUILDER_ASSETS is set",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``real_control_plane``."""
    config.addinivalue_line("markers", f"{MARKER}: runs only on the real control plane ($KUBEBUILDER_ASSETS)")


def _wants_real(config: pytest.Config) -> bool:
    choice = config.getoption("--control-plane")
    return choice == "real" or (choice == "auto" and bool(os.environ.get("KUBEBUILDER_ASSETS")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests marked for the real control plane if another one is used."""
    if _wants_real(config):
        return
    skip = pytest.mark.skip(reason="needs the real control plane: set KUBEBUILDER_ASSETS")
    for item in items:
        if item.get_closest_marker(MARKER):
            item.add_marker(skip)


def _namespaces(thread: ThreadedControlPlane) -> Any:
    """Return a function that creates and deletes namespaces with only the standard library."""
    import json
    import ssl
    import urllib.request

    context = ssl.create_default_context(cadata=thread.plane.ca_pem.decode())
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)

    def request(method: str, path: str, body: object = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {thread.plane.token}", "Content-Type": "application/json"}
        url = f"{thread.plane.url}/api/v1/namespaces{path}"
        prepared = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - our own https url
        with urllib.request.urlopen(prepared, context=context):  # noqa: S310
            pass

    return request


@pytest.fixture(scope="session")
def _threaded_control_plane(pytestconfig: pytest.Config) -> Iterator[ThreadedControlPlane]:
    from envtest.plane import ControlPlane
    from envtest.threaded import ThreadedControlPlane

    plane = ControlPlane.real() if _wants_real(pytestconfig) else ControlPlane.embedded()
    with ThreadedControlPlane(plane) as thread:
        yield thread


@pytest.fixture(scope="session")
def control_plane(_threaded_control_plane: ThreadedControlPlane) -> BaseControlPlane:
    """The session's control plane: ``url``, ``ca_pem``, ``token``, ``kubeconfig()``."""
    return _threaded_control_plane.plane


@pytest.fixture(scope="session")
def kubeconfig(control_plane: BaseControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a kubeconfig file of user ``admin``; pass it to the program under test, or set ``$KUBECONFIG``."""
    path = tmp_path_factory.mktemp("control-plane") / "kubeconfig"
    control_plane.kubeconfig(path)
    return path


@pytest.fixture
def namespace(_threaded_control_plane: ThreadedControlPlane) -> Iterator[str]:
    """A namespace for one test; it is deleted when the test ends, without waiting until it is empty."""
    request = _namespaces(_threaded_control_plane)
    name = f"test-{secrets.token_hex(4)}"
    request("POST", "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    request("DELETE", f"/{name}")


@pytest.fixture(scope="session")
def install_crds(_threaded_control_plane: ThreadedControlPlane) -> Callable[..., list[str]]:
    """A function that installs CRDs (objects, files or folders) and returns when they are established."""

    def install(*sources: Manifests) -> list[str]:
        return _threaded_control_plane.install_crds(*sources)

    return install


@pytest.fixture
def install_webhooks(
    _threaded_control_plane: ThreadedControlPlane, tmp_path: Path
) -> Iterator[Callable[..., LocalWebhooks]]:
    """A function that installs webhook configurations (objects, files or folders) that call a local server of the test.

    It returns the address to listen on and the certificate to use, the same for all calls in one test. The
    configurations are deleted after the test.
    """
    server: LocalWebhooks | Path = tmp_path / "webhooks"
    installed: list[Manifests] = []

    def install(*sources: Manifests) -> LocalWebhooks:
        nonlocal server
        installed.extend(sources)
        server = _threaded_control_plane.install_webhooks(*sources, server=server)
        return server

    yield install
    _threaded_control_plane.remove_webhooks(*installed)


async def _api_client(control_plane: BaseControlPlane) -> AsyncIterator[APIClient]:
    """An :class:`envtest.api_client.APIClient` of user ``admin``, for asynchronous tests (pytest-asyncio)."""
    from envtest.api_client import APIClient

    async with APIClient(control_plane) as client:
        yield client


try:
    import pytest_asyncio
except ImportError:  # pytest-asyncio is optional

    @pytest.fixture
    def api_client() -> None:
        """Fail the test that requests this fixture."""
        pytest.fail("the fixture api_client is asynchronous: install pytest-asyncio")

else:
    _asynchronous = pytest_asyncio.fixture(_api_client, name="api_client")
