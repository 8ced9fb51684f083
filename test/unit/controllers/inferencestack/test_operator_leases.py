"""Which major versions have operators, and for how long, according to their Leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from cfo.controllers.inferencestack.operator_leases import OperatorLeases
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.clock import FakeClock
from cfo.runtime.kinds import LEASE
from cfo.runtime.objects import NamespacedName


class Leases:
    """The informer of Leases, and what its handlers derive."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.handlers: list[Callable[[Event], None]] = []
        self.operators = OperatorLeases(self, self.clock)  # type: ignore[arg-type]
        self.changes = 0
        self.operators.on_change(self._count)

    def _count(self) -> None:
        self.changes += 1

    def add_handler(self, handler: Callable[[Event], None]) -> None:
        self.handlers.append(handler)

    def renew(self, version: str, namespace: str = "ns", **spec: Any) -> None:
        """Emit the event of a Lease."""
        key = NamespacedName(namespace, f"inference-stack-operator-{version}")
        spec = {"holderIdentity": "pod", "leaseDurationSeconds": 15, "renewTime": str(self.clock.now()), **spec}
        raw = orjson.dumps({"metadata": {"name": key.name, "namespace": namespace}, "spec": spec})
        entry = EntryDecoder(LEASE).decode(raw)
        for handler in self.handlers:
            handler(Event(EventType.ADDED, key, None, entry))


def test_operator_lives_until_its_lease_is_not_renewed_for_its_duration() -> None:
    leases = Leases()
    leases.renew("v2")
    leases.clock.advance(14)
    leases.renew("v2")
    leases.clock.advance(14)
    assert (leases.operators.live(), leases.changes) == ({"v2": ["ns"]}, 1)
    leases.clock.advance(2)
    assert (leases.operators.live(), leases.changes) == ({}, 2)


def test_released_lease_and_leases_with_other_names_are_not_operators() -> None:
    leases = Leases()
    leases.renew("v2", holderIdentity="")
    leases.renew("x")
    leases.renew("v02")
    assert leases.operators.live() == {}


def test_time_without_change_is_measured_for_each_version_since_observation_began() -> None:
    leases = Leases()
    leases.clock.advance(100)
    leases.renew("v2")
    leases.clock.advance(10)
    leases.renew("v2")
    assert (leases.operators.unchanged_seconds("v2"), leases.operators.unchanged_seconds("v3")) == (10, 110)
    leases.renew("v2", namespace="other")
    assert leases.operators.unchanged_seconds("v2") == 0
