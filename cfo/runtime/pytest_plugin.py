"""The pytest plugin: a client for the test control plane, and tests that fail because of errors in your functions.

The fixture ``kube_client`` is a :class:`~cfo.runtime.client.client.Client`. It requires the fixture ``control_plane``,
which ``envtest`` provides, and pytest-asyncio. The client is not imported until a test uses the fixture.

An error in a reconciler, a webhook or a map function is logged, and the operator continues. A test that waits for the
result would end with a timeout, or pass because of the next retry. It therefore fails with that error.

The report of a failed test has a section with the reconciles that fail, for example because a permission is missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any, Final

import pytest

from cfo.runtime.process import function_errors
from cfo.runtime.process.function_errors import Collection, FunctionError
from cfo.runtime.process.printable import printable

if TYPE_CHECKING:
    from cfo.runtime.client.client import Client

MARKER: Final = "function_errors"

_MAX_SHOWN: Final = 5
"""The maximum number of failing reconciles in a report."""

_MAX_LINE: Final = 1000

_COLLECTION: Final = pytest.StashKey[Collection]()
"""What was reported since the start of a test's setup: a reconcile that failed then may not be repeated later."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``function_errors``."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}: errors in reconcilers, webhooks and map functions do not fail the test (cfo.runtime)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail if a function raised an error during the setup of fixtures."""
    __tracebackhide__ = True
    return (yield from _failing_with_function_errors(item, "setup"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail if a function raised an error during the test."""
    __tracebackhide__ = True
    return (yield from _failing_with_function_errors(item, "call"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail if a function raised an error during the teardown of fixtures."""
    __tracebackhide__ = True
    return (yield from _failing_with_function_errors(item, "teardown"))


def _failing_with_function_errors(item: pytest.Item, when: str) -> Generator[None, Any, Any]:
    """Raise the first error that a function raised, if any, instead of the test's failure, which it explains."""
    __tracebackhide__ = True
    if item.get_closest_marker(MARKER) is not None:
        return (yield)
    result: Any = None
    failure: BaseException | None = None
    collection = item.stash.setdefault(_COLLECTION, Collection())
    collection.errors = []
    with function_errors.collected(collection):
        try:
            result = yield
        except pytest.xfail.Exception:
            raise
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any failure of the test
            failure = error
    explaining = [each for each in collection.errors if each.is_bug or failure is not None]
    if not explaining and failure is None:
        return result
    _add_failing(item, when, collection)
    if failure is None:
        raise _noted(explaining)
    if explaining:
        _add_report(item, when, failure)
        raise _noted(explaining)
    raise failure


def _add_report(item: pytest.Item, when: str, failure: BaseException) -> None:
    """Show the failure of the test itself in a section after the error of the function."""
    shown = item.repr_failure(pytest.ExceptionInfo.from_exception(failure))
    item.add_report_section(when, "failure of the test itself", str(shown))


def _add_failing(item: pytest.Item, when: str, collection: Collection) -> None:
    """Show the last errors of reconciles that have not succeeded since, the newest last."""
    lines = [f"{function}: {text}" for function, text in collection.failing.items()]
    if not lines:
        return
    shown = [printable(line, _MAX_LINE) for line in lines[-_MAX_SHOWN:]]
    if len(lines) > _MAX_SHOWN:
        shown.insert(0, f"{len(lines) - _MAX_SHOWN} more, and:")
    item.add_report_section(when, "failing reconciles", "\n".join(shown))


def _noted(found: list[FunctionError]) -> Exception:
    """Return the first error, with a note where it was raised and how many more there are."""
    first = found[0]
    note = f"raised in: {first.function}"
    if len(found) > 1:
        note = f"{note}; more errors of functions in the log: {len(found) - 1}"
    first.error.add_note(note)
    return first.error


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
