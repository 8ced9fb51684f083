"""Which major versions have operators, and for how long, according to their Leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from cfo.controllers.inferencestack.operator_leases import MAX_FOREIGN_LEASES, OperatorLeases
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.objects.kinds import LEASE, POD
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from test.support.clocks import FakeClock


class CountingClock(FakeClock):
    """A clock that counts how often it is read: once or more for each Lease of which the state is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return super().monotonic()


class Requests:
    """A client for the verification: ``pods`` are service accounts by pod, ``operators`` the accounts with access."""

    def __init__(self) -> None:
        self.pods: dict[NamespacedName, str] = {}
        self.operators: set[str] = set()
        self.sent = 0

    async def get(self, gvk: GVK, key: NamespacedName, *, live: bool) -> Object | None:
        self.sent += 1
        assert (gvk, live) == (POD, True)
        return {"spec": {"serviceAccountName": self.pods[key]}} if key in self.pods else None

    async def create(self, review: Object) -> Object:
        self.sent += 1
        attributes = review["spec"]["resourceAttributes"]
        assert "namespace" not in attributes, "in the whole cluster"
        allowed = (
            review["spec"]["user"] in self.operators and attributes["group"] == "doublewordai.co"
        )
        return {"status": {"allowed": allowed}}


class Leases:
    """The informer of Leases, and what its handlers derive."""

    def __init__(self) -> None:
        self.clock = CountingClock()
        self.handlers: list[Callable[[Event], None]] = []
        self.requests = Requests()
        self.operators = OperatorLeases(self, self.requests, self.clock, "ns")  # type: ignore[arg-type]
        self.changes = 0
        self.verifications = 0
        self.operators.on_change(self._count_change)
        self.operators.on_unverified(self._count_verification)

    def _count_change(self) -> None:
        self.changes += 1

    def _count_verification(self) -> None:
        self.verifications += 1

    def add_handler(self, handler: Callable[[Event], None]) -> None:
        self.handlers.append(handler)

    def renew(self, version: str, namespace: str = "ns", **spec: Any) -> None:
        """Emit the event of a Lease."""
        key = NamespacedName(namespace, f"inference-stack-operator-{version}")
        spec = {
            "holderIdentity": "pod",
            "leaseDurationSeconds": 15,
            "renewTime": str(self.clock.now()),
            **spec,
        }
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
    assert (leases.operators.unchanged_seconds("v2"), leases.operators.unchanged_seconds("v3")) == (
        10,
        110,
    )


async def test_lease_of_another_namespace_counts_if_its_holder_is_allowed_to_write_the_status_of_stacks() -> (
    None
):
    leases = Leases()
    leases.renew("v2", "other", holderIdentity="pod-1_uuid")
    assert leases.operators.live() == {}
    assert (leases.changes, leases.verifications) == (0, 1), "it must be verified"
    leases.requests.pods[NamespacedName("other", "pod-1")] = "account"
    leases.requests.operators.add("system:serviceaccount:other:account")
    await leases.operators.verify()
    assert (leases.operators.live(), leases.changes) == ({"v2": ["other"]}, 1)
    sent = leases.requests.sent
    leases.renew("v2", "other", holderIdentity="pod-1_uuid")
    await leases.operators.verify()
    assert leases.requests.sent == sent
    leases.renew("v2", "other", holderIdentity="pod-2_uuid")
    assert leases.operators.live() == {}, "another holder is not verified yet"


async def test_leases_of_other_users_are_ignored_and_rarely_verified() -> None:
    leases = Leases()
    leases.renew("v2")
    for number, holder in enumerate(("", "x", "pod_1", "a/b", "pod_2")):
        leases.requests.pods[NamespacedName("tenant", "pod")] = "default"
        leases.renew(f"v{number + 2}", "tenant", holderIdentity=holder)
        await leases.operators.verify()
    assert leases.operators.live() == {"v2": ["ns"]}
    assert leases.requests.sent == 1, "at most one verification in a minute for each namespace"
    leases.clock.advance(61)
    leases.renew("v2", "tenant", holderIdentity="pod_1")
    await leases.operators.verify()
    assert leases.operators.live() == {}
    assert leases.requests.sent == 4


async def test_thousands_of_leases_of_a_tenant_cost_as_little_as_each_of_them() -> None:
    leases = Leases()
    leases.renew("v2")
    for number in range(2500):
        leases.renew(f"x{number}", "tenant")
        leases.renew(f"v{number}", "tenant", leaseDurationSeconds=1 << 30)
    assert leases.clock.reads < 5 * 5000
    assert leases.clock.timers == 1
    assert leases.changes == 1, "our own Lease"
    assert leases.verifications == 1, "those of the tenant are verified together"
    await leases.operators.verify()
    assert leases.requests.sent == 1, "the namespace is rejected with its first Lease"
    assert leases.operators.live() == {"v2": ["ns"]}


async def test_leases_in_very_many_namespaces_do_not_hide_the_own_one() -> None:
    leases = Leases()
    for number in range(3000):
        leases.renew("v2", f"tenant-{number}")
    leases.renew("v2")
    await leases.operators.verify()
    assert leases.requests.sent == MAX_FOREIGN_LEASES
    assert leases.operators.live() == {"v2": ["ns"]}
