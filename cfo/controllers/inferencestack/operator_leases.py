"""The Leases of stack operators, from which each operator knows which major versions are served.

An operator holds a Lease that is named after its major version while it reconciles. Any user who can edit a namespace
can create such a Lease there. So a Lease in another namespace than that of this operator counts only if its holder is a
pod whose service account is allowed to write the status of stacks in the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import msgspec
import structlog

from cfo.api.inferencestack.kinds import INFERENCE_STACKS, is_operator_version
from cfo.api.inferencestack.names import MANAGED_BY
from cfo.runtime import POD, READ, APIError, Client, Clock, Event, Informer, NamespacedName, Rule
from cfo.runtime.objects import LEASE

LEASE_LABELS: Final = {"app.kubernetes.io/part-of": MANAGED_BY}
LEASE_SELECTOR: Final = f"app.kubernetes.io/part-of={MANAGED_BY}"

_REJECTION_SECONDS: Final = 60.0
"""For how long the Leases of a namespace are not verified again after one of them was rejected."""

_log = structlog.get_logger("cfo.controllers.inferencestack.operator_leases")

_LEASE_PREFIX: Final = f"{MANAGED_BY}-"


def lease_name(operator_version: str) -> str:
    """Return the Lease name for an operator of this major version."""
    return f"{_LEASE_PREFIX}{operator_version}"


class _LeaseSpec(msgspec.Struct, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, gc=False):
    spec: _LeaseSpec | None = None


_decoder = msgspec.json.Decoder(_Lease)


class OperatorLeases:
    """The Leases of all operators of stacks, in all namespaces; that of this operator is in ``namespace``.

    A Lease is valid for its duration after its last change was observed; clocks of other machines are not compared.
    """

    rules: Final = (
        Rule(LEASE.group, "leases", READ[1:]),
        Rule("", "pods", "get"),
        Rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    )

    def __init__(self, leases: Informer, client: Client, clock: Clock, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._verified: dict[NamespacedName, str] = {}
        self._rejected: dict[str, float] = {}
        self._lock = anyio.Lock()
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
            if is_operator_version(version) and valid and self._is_verified(key, spec):
                found.setdefault(version, []).append(key.namespace)
        return found

    def _is_verified(self, key: NamespacedName, spec: _LeaseSpec) -> bool:
        if not spec.holder_identity:
            return False
        return key.namespace == self._namespace or self._verified.get(key) == spec.holder_identity

    async def verify(self) -> None:
        """Verify the Leases in other namespaces that have new holders. Call it before :meth:`live`."""
        async with self._lock:
            for key, (spec, _) in list(self._specs.items()):
                holder = spec.holder_identity or ""
                if not self._must_be_verified(key, spec):
                    continue
                if await self._is_operator(key.namespace, holder):
                    self._verified[key] = holder
                else:
                    self._rejected[key.namespace] = self._clock.monotonic()
                    _log.warning("Holder of Lease is not an operator, ignoring it", lease=str(key), holder=holder)
        self._check()

    def _must_be_verified(self, key: NamespacedName, spec: _LeaseSpec) -> bool:
        if not spec.holder_identity or self._is_verified(key, spec):
            return False
        rejected = self._rejected.get(key.namespace)
        return rejected is None or rejected + _REJECTION_SECONDS <= self._clock.monotonic()

    async def _is_operator(self, namespace: str, holder: str) -> bool:
        """Return whether the pod that ``holder`` names (``<pod>_<uuid>``) is allowed to write the status of stacks."""
        try:
            pod = await self._client.get(POD, NamespacedName(namespace, holder.partition("_")[0]), live=True)
        except (APIError, ValueError):  # not a valid name, or permission denied
            return False
        if pod is None:
            return False
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        user = f"system:serviceaccount:{namespace}:{pod['spec'].get('serviceAccountName') or 'default'}"
        for gvk in INFERENCE_STACKS:
            attributes = {"verb": "patch", "group": gvk.group, "resource": "inferencestacks", "subresource": "status"}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"resourceAttributes": attributes, "user": user, "groups": groups},
            }
            response = await self._client.create(review)
            if (response.get("status") or {}).get("allowed"):
                return True
        return False

    def unchanged_seconds(self, version: str) -> float:
        """Return how long the operators of a major version have been the same, as far as they were observed."""
        return self._clock.monotonic() - self._changes.get(version, self._begin)

    def _observe(self, event: Event) -> None:
        if event.new is None:
            self._specs.pop(event.key, None)
            self._verified.pop(event.key, None)
        else:
            spec = _decoder.decode(event.new.raw).spec or _LeaseSpec()
            known = self._specs.get(event.key)
            if known is None or known[0] != spec:
                self._specs[event.key] = (spec, self._clock.monotonic())
                self._clock.call_later((spec.lease_duration_seconds or 0) + 0.1, self._check)
            if self._must_be_verified(event.key, spec):
                self._notify()
        self._check()

    def _check(self) -> None:
        live = self.live()
        if live != self._known:
            for version in live.keys() | self._known.keys():
                if live.get(version) != self._known.get(version):
                    self._changes[version] = self._clock.monotonic()
            self._known = live
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
