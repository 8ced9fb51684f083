"""Pytest fixtures that provide a Kubernetes API server, for operators in any language and framework.

The control plane is started once for the session, on its own thread, so that synchronous tests, asynchronous tests and
programs under test can all use it; each test gets its own namespace. It is the embedded control plane, or the real one
if ``$KUBEBUILDER_ASSETS`` is set; ``--control-plane`` overrides this.
"""

from __future__ import annotations

import inspect
import os
import secrets
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from envtest.api_client import APIClient
    from envtest.chaos import Report
    from envtest.formats.manifests import Manifests
    from envtest.planes.local_webhooks import LocalWebhooks
    from envtest.planes.plane import ScenarioSource
    from envtest.planes.trace import Trace
    from envtest.threaded import ThreadedControlPlane

MARKER = "real_control_plane"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--control-plane``, ``--kubernetes-version`` and ``--controllers``."""
    group = parser.getgroup("control plane", "Kubernetes control planes for tests (envtest)")
    group.addoption(
        "--control-plane",
        choices=("auto", "embedded", "real"),
        default="auto",
        help="which control plane the fixtures start; auto: the real one if $KUBEBUILDER_ASSETS is set",
    )
    group.addoption(
        "--kubernetes-version",
        default="",
        metavar="VERSION",
        help="the Kubernetes version that the embedded control plane behaves like; default: the newest one",
    )
    group.addoption(
        "--controllers",
        default="",
        metavar="NAMES",
        help="the controllers that run with the API server, comma-separated, or all, or none; default: those of the "
        "fixture controllers",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``real_control_plane``; end the run if an option of this plugin has an invalid value."""
    config.addinivalue_line(
        "markers", f"{MARKER}: runs only on the real control plane ($KUBEBUILDER_ASSETS)"
    )
    version = config.getoption("--kubernetes-version")
    if version:
        from envtest.configuration.kubernetes_version import parse_version

        _check_option(parse_version, version)
        if _wants_real(config):
            config.issue_config_time_warning(
                pytest.PytestWarning(
                    f"--kubernetes-version={version} is ignored: the real control plane has the version of its "
                    "programs; --control-plane=embedded uses the option"
                ),
                stacklevel=2,
            )
    controllers = config.getoption("--controllers")
    if controllers:
        from envtest.controllers import selected_names

        _check_option(lambda text: selected_names(_names(text)), controllers)


def _names(text: str) -> tuple[str, ...]:
    from envtest.configuration.controllers_option import controller_names

    return controller_names(text)


def _check_option(check: Callable[[str], object], value: str) -> None:
    """Raise UsageError, which pytest prints in one line, if ``check`` raises ValueError."""
    try:
        check(value)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


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


_ASYNCHRONOUS: Final = ("api_client", "fork_client")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Check the fixtures of a test that uses the control plane; other tests take no time for it."""
    if not isinstance(item, pytest.Function):
        return (yield)
    if any(name in item.fixturenames for name in _ASYNCHRONOUS):
        _check_is_asynchronous(item)
    result = yield
    if "_threaded_control_plane" in item.fixturenames:
        _check_configuration(item)
    return result


def _check_is_asynchronous(item: pytest.Function) -> None:
    """Fail a synchronous test that has an asynchronous client as a parameter: it could not await the responses."""
    # the test that hypothesis wraps can be asynchronous
    if hasattr(item.function, "hypothesis"):
        return
    function = inspect.unwrap(item.function)
    if inspect.iscoroutinefunction(function):
        return
    for name in _ASYNCHRONOUS:
        if name in inspect.signature(function).parameters:
            message = (
                f"fixture {name}: {item.name} must be `async def`, because the client is asynchronous; a synchronous "
                "test can use any HTTP client with control_plane.url, ca_pem and token"
            )
            pytest.fail(message, pytrace=False)


def _check_configuration(item: pytest.Function) -> None:
    """Fail a test that overrides a fixture of the control plane after it was started without the override."""
    for name, started_with in item.config.stash[_STARTED_WITH].items():
        if name == "controllers" and item.config.getoption("--controllers"):
            continue  # the option wins
        wanted = item.funcargs[name]
        if wanted != started_with:
            message = (
                f"fixture {name}: this test asks for {wanted!r}, but the control plane of the session was started "
                f"with {started_with!r}; override the fixture only in the conftest.py of the root folder"
            )
            pytest.fail(message, pytrace=False)


def _namespaces(thread: ThreadedControlPlane) -> Any:
    """Return a function that creates and deletes namespaces with only the standard library."""
    import json
    import ssl
    import urllib.request

    context = ssl.create_default_context(cadata=thread.plane.ca_pem.decode())
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)

    def request(method: str, path: str, body: object = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        headers = {
            "Authorization": f"Bearer {thread.plane.token}",
            "Content-Type": "application/json",
        }
        url = f"{thread.plane.url}/api/v1/namespaces{path}"
        prepared = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - our own https url
        with urllib.request.urlopen(prepared, context=context):  # noqa: S310
            pass

    return request


@pytest.fixture(scope="session")
def controllers() -> Sequence[str]:
    """The controllers that run with the API server; override it in the ``conftest.py`` of the root folder."""
    from envtest.configuration.controller_names import DEFAULT

    return DEFAULT


@pytest.fixture(scope="session")
def control_plane_scenario() -> ScenarioSource | None:
    """The scenario of the control plane, a file or a mapping; override it in the ``conftest.py`` of the root folder."""
    return None


@pytest.fixture(scope="session")
def control_plane_crds() -> Sequence[Manifests]:
    """The CRDs that the control plane starts with; override it in the ``conftest.py`` of the root folder.

    The garbage collector of the real control plane knows them at once; it finds later ones only after up to 30 seconds.
    """
    return ()


_STARTED_WITH: Final = pytest.StashKey[dict[str, Any]]()
"""The values of the fixtures that configure the control plane, when it was started."""


@pytest.fixture(scope="session")
def _threaded_control_plane(
    pytestconfig: pytest.Config,
    controllers: Sequence[str],
    control_plane_scenario: ScenarioSource | None,
    control_plane_crds: Sequence[Manifests],
) -> Iterator[ThreadedControlPlane]:
    from envtest.planes.plane import ControlPlane
    from envtest.planes.real import StartFailed
    from envtest.threaded import ThreadedControlPlane

    pytestconfig.stash[_STARTED_WITH] = {
        "controllers": controllers,
        "control_plane_scenario": control_plane_scenario,
        "control_plane_crds": control_plane_crds,
    }
    option = pytestconfig.getoption("--controllers")
    if control_plane_scenario is not None and _wants_real(pytestconfig):
        message = "a scenario needs the embedded control plane: --control-plane=embedded"
        pytest.fail(message, pytrace=False)
    try:
        if option:
            controllers = _names(option)
        if _wants_real(pytestconfig):
            plane: ControlPlane = ControlPlane.real(
                crds=control_plane_crds, controllers=controllers
            )
        else:
            plane = ControlPlane.embedded(
                kubernetes_version=pytestconfig.getoption("--kubernetes-version"),
                crds=control_plane_crds,
                controllers=controllers,
                scenario=control_plane_scenario,
            )
        thread = ThreadedControlPlane(plane)
        thread.start()
    except (OSError, StartFailed, TypeError, ValueError) as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    yield thread
    thread.stop()


@pytest.fixture(scope="session")
def control_plane(_threaded_control_plane: ThreadedControlPlane) -> ThreadedControlPlane:
    """The session's control plane: ``url``, ``ca_pem``, ``token``, ``kubeconfig()``; ``faults``, ``add_user()``."""
    return _threaded_control_plane


@pytest.fixture(scope="session")
def kubeconfig(
    control_plane: ThreadedControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Path:
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
        try:
            return _threaded_control_plane.install_crds(*sources)
        except (OSError, TypeError, ValueError) as error:
            raise error.with_traceback(
                None
            ) from None  # without the frames of the thread of the control plane

    return install


@pytest.fixture
def forked_plane(
    pytestconfig: pytest.Config, _threaded_control_plane: ThreadedControlPlane
) -> Iterator[ThreadedControlPlane]:
    """A copy of the session's control plane for one test, as it is when the test starts."""
    _require_embedded(pytestconfig)
    with _threaded_control_plane.fork() as copy:
        yield copy


@pytest.fixture
def restore_plane(pytestconfig: pytest.Config) -> Iterator[Callable[..., ThreadedControlPlane]]:
    """A function that starts a control plane from a file that ``snapshot()`` wrote; it is stopped after the test."""
    from envtest.planes.plane import ControlPlane
    from envtest.threaded import ThreadedControlPlane

    _require_embedded(pytestconfig)
    with ExitStack() as started:

        def restore(path: Path | str, **options: Any) -> ThreadedControlPlane:
            try:
                return started.enter_context(
                    ThreadedControlPlane(ControlPlane.restore(path, **options))
                )
            except (OSError, TypeError, ValueError) as error:
                raise error.with_traceback(None) from None

        yield restore


def _require_embedded(config: pytest.Config) -> None:
    if _wants_real(config):
        pytest.skip("needs the embedded control plane, which can be copied and restored")


@pytest.fixture
def chaos(
    pytestconfig: pytest.Config, _threaded_control_plane: ThreadedControlPlane
) -> Callable[..., Report]:
    """A function that runs an operator with faults, on copies of the session's control plane.

    Its parameters and its result are those of :func:`envtest.chaos.explore`.
    """
    _require_embedded(pytestconfig)
    thread = _threaded_control_plane

    def explore(operator: Any, scenario: Any = (), **options: Any) -> Report:
        from envtest.chaos import explore as explore_faults

        with thread.fork() as prepared:
            return prepared.call(
                explore_faults(operator, scenario, plane=prepared.embedded, **options)
            )

    return explore


_TRACE = pytest.StashKey[Any]()
_REPORT_LINES = 200


@pytest.fixture
def request_trace(
    request: pytest.FixtureRequest, _threaded_control_plane: ThreadedControlPlane
) -> Iterator[Trace]:
    """The requests of this test to its ``forked_plane``, or to the session's control plane if it has none.

    The requests that create and delete the namespace of the test are not among them.
    If the test fails, its report contains the writes.
    """
    _require_embedded(request.config)
    plane = _threaded_control_plane
    if "forked_plane" in request.fixturenames:
        plane = request.getfixturevalue("forked_plane")
    if "namespace" in request.fixturenames:  # created before, whatever the order of the parameters
        request.getfixturevalue("namespace")
    with plane.trace() as trace:
        request.node.stash[_TRACE] = trace
        yield trace


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the requests of a failed test to its report."""
    report = yield
    trace = item.stash.get(_TRACE, None)
    if trace is not None and report.when == "call" and report.failed:
        lines = trace.report().splitlines()
        report.sections.append(("Writes to the control plane", "\n".join(lines[-_REPORT_LINES:])))
    return report


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
        try:
            server = _threaded_control_plane.install_webhooks(*sources, server=server)
        except (OSError, TypeError, ValueError) as error:
            # without the frames of the thread of the control plane
            raise error.with_traceback(None) from None
        installed.extend(sources)
        return server

    yield install
    _threaded_control_plane.remove_webhooks(*installed)


async def _fork_client(forked_plane: ThreadedControlPlane) -> AsyncIterator[APIClient]:
    """An :class:`envtest.api_client.APIClient` of user ``admin`` for ``forked_plane``."""
    from envtest.api_client import APIClient

    async with APIClient(forked_plane) as client:
        yield client


async def _api_client(control_plane: ThreadedControlPlane) -> AsyncIterator[APIClient]:
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

    @pytest.fixture
    def fork_client() -> None:
        """Fail the test that requests this fixture."""
        pytest.fail("the fixture fork_client is asynchronous: install pytest-asyncio")

else:
    _asynchronous = pytest_asyncio.fixture(_api_client, name="api_client")
    _fork_asynchronous = pytest_asyncio.fixture(_fork_client, name="fork_client")
