"""The FluxSetup that the operator creates if there is none."""

from typing import cast

import pytest

from cfo.config.model import DefaultSetupConfiguration
from cfo.controllers.flux.fluxsetup import DefaultSetup, default_setup
from cfo.runtime import Client, Informer, LabelSelector, Object, TransportError
from test.support.clocks import SkippingClock


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ("", {}),
        ("operatorVersion=v1", {"operatorVersion": "v1"}),
        ("stage in (b,a),managed,!legacy,zone!=x", {"stage": "a", "managed": ""}),
    ],
)
def test_operator_selects_its_default_setup(selector: str, labels: dict[str, str]) -> None:
    parsed = LabelSelector.of(selector)
    metadata = default_setup(DefaultSetupConfiguration(), "operator", parsed)["metadata"]
    assert metadata == {
        "name": "default",
        "namespace": "operator",
        **({"labels": labels} if labels else {}),
    }
    assert parsed.matches(labels)


class _Setups:
    """An informer of no FluxSetups."""

    reader: tuple[Object, ...] = ()

    async def wait_for_sync(self) -> None:
        """Return immediately."""


class _Client:
    """A client whose first requests fail."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.created: list[Object] = []

    async def create(self, obj: Object) -> Object:
        """Create an object, or raise the next error."""
        if self.errors:
            raise self.errors.pop(0)
        self.created.append(obj)
        return obj


async def test_default_setup_is_retried_until_the_webhook_responds() -> None:
    desired = default_setup(DefaultSetupConfiguration(), "operator")
    failure = TransportError("connection refused", outcome_unknown=False)
    client = _Client(failure, failure)
    clock = SkippingClock()
    await DefaultSetup(cast("Client", client), cast("Informer", _Setups()), desired, clock).run()
    assert client.created == [desired]
    assert len(clock.sleeps) == 2
