"""The Leases of stack operators, from which each operator knows which major versions are served.

Any user who can edit a namespace can create such a Lease there. So a Lease in another namespace than that of this
operator counts only if its holder is a pod whose service account is allowed to write the status of stacks in the whole
cluster.

Only Leases with the name of a major version are stored, so a namespace has at most one for each version, and at most
:data:`MAX_FOREIGN_LEASES` of other namespaces. An event costs the same however many Leases there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import anyio
import msgspec
import structlog

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.inferencestack.leases import VERSIONS
from cfo.controllers.cached_fields import field_reader
from cfo.runtime import POD, READ, APIError, Client, Clock, Event, Informer, NamespacedName, Rule
from cfo.runtime.client import is_allowed, service_account
from cfo.runtime.objects import LEASE
from cfo.runtime.process import Timer

_MAX_HOLDER: Final = 512
"""The maximum length of a holder: more than the name of a pod and a uid have."""

MAX_FOREIGN_LEASES: Final = 1000
"""How many Leases of other namespaces are considered; more than an installation has operators."""

_REJECTION_SECONDS: Final = 60.0
"""For how long the Leases of a namespace are not verified again after one of them was rejected."""

_log = structlog.get_logger("cfo.controllers.inferencestack.operator_leases")


class _LeaseSpec(msgspec.Struct, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


_spec_of = field_reader("spec", kind=_LeaseSpec, default=_LeaseSpec())


class OperatorLeases:
    """The Leases of all operators of stacks, in all namespaces; that of this operator is in ``namespace``.

    A Lease is valid for its duration after its last change was observed; clocks of other machines are not compared.
    ``own_version`` is the major version that this operator serves without leader election, which needs no Lease.
    """

    rules: Final = (
        Rule(LEASE.group, "leases", READ[1:]),
        Rule("", "pods", "get"),
        Rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    )

    def __init__(
        self,
        leases: Informer,
        client: Client,
        clock: Clock,
        namespace: str,
        own_version: str = "",
    ) -> None:
        self._own_version = own_version
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._own = [NamespacedName(namespace, name) for name in VERSIONS]
        self._verified: dict[NamespacedName, str] = {}
        self._unverified: set[NamespacedName] = set()
        self._rejected: dict[str, float] = {}
        self._lock = anyio.Lock()
        self._specs: dict[NamespacedName, tuple[_LeaseSpec, float]] = {}
        self._known: dict[str, list[str]] = {}
        self._begin = clock.monotonic()
        self._changes: dict[str, float] = {}
        self._listeners: list[Callable[[], None]] = []
        self._unverified_listeners: list[Callable[[], None]] = []
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._is_full = False
        leases.add_handler(self._observe)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when an operator appears or disappears."""
        self._listeners.append(listener)

    def on_unverified(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when :meth:`verify` must be called; any tenant can cause this once a minute."""
        self._unverified_listeners.append(listener)

    def live(self) -> dict[str, list[str]]:
        """Return the sorted namespaces of the operators that hold a Lease, and this operator's, by major version."""
        found: dict[str, set[str]] = {}
        if self._own_version:
            found[self._own_version] = {self._namespace}
        now = self._clock.monotonic()
        for key, end in self._ends():
            if end > now:
                found.setdefault(VERSIONS[key.name], set()).add(key.namespace)
        return {version: sorted(found[version]) for version in sorted(found)}

    def _ends(self) -> Iterator[tuple[NamespacedName, float]]:
        """Yield the Leases of operators, and when each ends unless it is renewed."""
        for key in (*self._own, *self._verified):
            spec, observed = self._specs.get(key, (None, 0.0))
            if spec is not None and self._is_verified(key, spec):
                yield key, observed + (spec.lease_duration_seconds or 0)

    def _is_verified(self, key: NamespacedName, spec: _LeaseSpec) -> bool:
        if not spec.holder_identity:
            return False
        return key.namespace == self._namespace or self._verified.get(key) == spec.holder_identity

    async def verify(self) -> None:
        """Verify the Leases in other namespaces that have new holders. Call it before :meth:`live`."""
        if not self._unverified:
            return
        async with self._lock:
            for key in list(self._unverified):
                known = self._specs.get(key)
                if known is not None:
                    await self._verify(key, known[0])
                if self._specs.get(key) is known:  # else it changed meanwhile
                    self._unverified.discard(key)
        self._check()

    async def _verify(self, key: NamespacedName, spec: _LeaseSpec) -> None:
        if not self._must_be_verified(key, spec):
            return  # another Lease of the namespace was rejected meanwhile
        holder = spec.holder_identity or ""
        if await self._is_operator(key.namespace, holder):
            self._verified[key] = holder
        else:
            now = self._clock.monotonic()
            self._rejected = {
                name: at for name, at in self._rejected.items() if at + _REJECTION_SECONDS > now
            }
            self._rejected[key.namespace] = now
            _log.warning(
                "Holder of Lease is not an operator, ignoring it", lease=str(key), holder=holder
            )

    def _must_be_verified(self, key: NamespacedName, spec: _LeaseSpec) -> bool:
        if not spec.holder_identity or self._is_verified(key, spec):
            return False
        rejected = self._rejected.get(key.namespace)
        return rejected is None or rejected + _REJECTION_SECONDS <= self._clock.monotonic()

    async def _is_operator(self, namespace: str, holder: str) -> bool:
        """Return whether the pod that ``holder`` names (``<pod>_<uuid>``) is allowed to write the status of stacks."""
        try:
            pod = await self._client.get(
                POD, NamespacedName(namespace, holder.partition("_")[0]), live=True
            )
        except (APIError, ValueError):  # not a valid name, or permission denied
            return False
        if pod is None:
            return False
        user = service_account(namespace, pod["spec"].get("serviceAccountName") or "default")
        for gvk in INFERENCE_STACKS:
            attributes = {
                "verb": "patch",
                "group": gvk.group,
                "resource": "inferencestacks",
                "subresource": "status",
            }
            if await is_allowed(self._client, resourceAttributes=attributes, **user):
                return True
        return False

    def unchanged_seconds(self, version: str) -> float:
        """Return how long the operators of a major version have been the same, as far as they were observed."""
        return self._clock.monotonic() - self._changes.get(version, self._begin)

    def _observe(self, event: Event) -> None:
        key = event.key
        if event.new is None:
            self._specs.pop(key, None)
            self._verified.pop(key, None)
            self._unverified.discard(key)
        elif key.name not in VERSIONS or not self._has_room(key):
            return  # any tenant can create Leases with our label, and any number of them
        else:
            spec = _spec_of(event.new)
            if len(spec.holder_identity or "") > _MAX_HOLDER:
                spec = _LeaseSpec()  # no pod has such a name, and any tenant can write it
            known = self._specs.get(key)
            if known is None or known[0] != spec:
                self._specs[key] = (spec, self._clock.monotonic())
            if self._must_be_verified(key, spec):
                is_first = not self._unverified
                self._unverified.add(key)
                if is_first:  # one reconcile verifies all
                    _call(self._unverified_listeners)
        self._check()

    def _has_room(self, key: NamespacedName) -> bool:
        if (
            key in self._specs
            or key.namespace == self._namespace
            or len(self._specs) < MAX_FOREIGN_LEASES
        ):
            return True
        if not self._is_full:
            _log.warning(
                "Too many Leases of operators, ignoring others",
                lease=str(key),
                limit=MAX_FOREIGN_LEASES,
            )
            self._is_full = True
        return False

    def _check(self) -> None:
        live = self.live()
        if live != self._known:
            for version in live.keys() | self._known.keys():
                if live.get(version) != self._known.get(version):
                    self._changes[version] = self._clock.monotonic()
            self._known = live
            _call(self._listeners)
        self._set_timer()

    def _set_timer(self) -> None:
        """Check again when the next Lease ends."""
        now = self._clock.monotonic()
        due = min((end + 0.1 for _, end in self._ends() if end > now), default=None)
        if due is None or (self._timer is not None and self._timer_at <= due):
            return  # an earlier timer sets the next one
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._clock.call_later(due - now, self._end)

    def _end(self) -> None:
        self._timer = None
        self._check()


def _call(listeners: Iterable[Callable[[], None]]) -> None:
    for listener in listeners:
        listener()
