"""The Leases of the operators of stacks, from which each of them knows which major versions are served.

An operator holds a Lease that is named after its major version while it reconciles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from cfo.api.inferencestack.kinds import is_operator_version
from cfo.api.inferencestack.names import MANAGED_BY
from cfo.runtime import Clock, Event, Informer, NamespacedName

__all__ = ["LEASE_LABELS", "LEASE_SELECTOR", "OperatorLeases", "lease_name"]

LEASE_LABELS: Final = {"app.kubernetes.io/part-of": MANAGED_BY}
LEASE_SELECTOR: Final = f"app.kubernetes.io/part-of={MANAGED_BY}"

_LEASE_PREFIX: Final = f"{MANAGED_BY}-"


def lease_name(operator_version: str) -> str:
    """Return the name of the Lease of an operator of this major version."""
    return f"{_LEASE_PREFIX}{operator_version}"


class _LeaseSpec(msgspec.Struct, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, gc=False):
    spec: _LeaseSpec | None = None


_decoder = msgspec.json.Decoder(_Lease)


class OperatorLeases:
    """The Leases of all operators of stacks, in all namespaces.

    A Lease is valid for its duration after its last change was observed; clocks of other machines are not compared.
    """

    def __init__(self, leases: Informer, clock: Clock) -> None:
        self._clock = clock
        self._specs: dict[NamespacedName, tuple[_LeaseSpec, float]] = {}
        self._known: dict[str, list[str]] = {}
        self._begin = clock.monotonic()
        self._changes: dict[str, float] = {}
        self._listeners: list[Callable[[], None]] = []
        leases.add_handler(self._observe)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when an operator appears or disappears."""
        self._listeners.append(listener)

    def live(self) -> dict[str, list[str]]:
        """Return the sorted namespaces of the operators that hold a Lease, by major version."""
        found: dict[str, list[str]] = {}
        for key, (spec, observed) in sorted(self._specs.items()):
            version = key.name.removeprefix(_LEASE_PREFIX)
            valid = observed + (spec.lease_duration_seconds or 0) > self._clock.monotonic()
            if is_operator_version(version) and spec.holder_identity and valid:
                found.setdefault(version, []).append(key.namespace)
        return found

    def unchanged_seconds(self, version: str) -> float:
        """Return how long the operators of a major version have been the same, as far as they were observed."""
        return self._clock.monotonic() - self._changes.get(version, self._begin)

    def _observe(self, event: Event) -> None:
        if event.new is None:
            self._specs.pop(event.key, None)
        else:
            spec = _decoder.decode(event.new.raw).spec or _LeaseSpec()
            known = self._specs.get(event.key)
            if known is None or known[0] != spec:
                self._specs[event.key] = (spec, self._clock.monotonic())
                self._clock.call_later((spec.lease_duration_seconds or 0) + 0.1, self._check)
        self._check()

    def _check(self) -> None:
        live = self.live()
        if live != self._known:
            for version in live.keys() | self._known.keys():
                if live.get(version) != self._known.get(version):
                    self._changes[version] = self._clock.monotonic()
            self._known = live
            for listener in self._listeners:
                listener()
