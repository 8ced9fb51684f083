"""Which FluxSetup governs the jobs of which namespace: pure functions.

A FluxSetup governs its own namespace, and with a ``namespaceSelector`` all namespaces that match. A FluxSetup in the
namespace itself has precedence over one of another namespace, and among equals the newest one governs. An older one is
thereby replaced, and governs again when the newer one is deleted. Selecting other namespaces is reserved to the
namespaces of administrators, because a FluxSetup determines the quota of whom it governs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from cfo.api.flux.names import Fairness, Preemption, Queue, QueueingStrategy
from cfo.api.flux.validation import error_message
from cfo.api.flux.validation.queue import validate_flux_setup
from cfo.api.pod_requests import amounts_of
from cfo.controllers.flux.queue.model import Policy
from cfo.controllers.flux.queue.shape import shape_of_defaults
from cfo.runtime import LabelSelector, NamespacedName, Object, key_of, uid_of
from cfo.runtime.cache import SelectorError

READY: Final = "Ready"
REPLACED: Final = "Replaced"
INVALID: Final = "Invalid"
INVALID_SELECTOR: Final = "InvalidSelector"

_DEFAULT_PODS: Final = 20

_MAX_SETUP: Final = 64 << 10
"""How many bytes the parts of a FluxSetup take at most that are kept for the queue."""
_KEPT_PARTS: Final = ("namespaceSelector", "resources", "weights", "kueue")
_MAX_PROBLEM: Final = 1024
"""The maximum length of the message of a problem, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A FluxSetup. ``selector`` is ``None`` if it has none; ``problem`` is why it governs nothing (reason, message).

    ``defaults`` are those of its MiniClusters, encoded.
    """

    key: NamespacedName
    uid: str
    generation: int
    created: str
    policy: Policy
    defaults: bytes
    kueue_queue: str
    selector: LabelSelector | None
    problem: tuple[str, str] | None = None

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the setup is meant for a namespace with these labels."""
        if self.selector is None:
            return namespace == self.key.namespace
        return self.selector.matches(labels)

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the setup could govern a namespace with these labels, or its own one."""
        if self.problem is not None:
            return False
        return namespace == self.key.namespace or self.selects(namespace, labels)


def setup_of(obj: Object, admin_namespaces: Collection[str]) -> Setup:
    """Return the setup of a FluxSetup, with its problem if it is invalid or may not select other namespaces."""
    spec: Mapping[str, Any] = obj.get("spec") or {}
    key = key_of(obj)
    problem: tuple[str, str] | None = None
    size = len(orjson.dumps([spec.get(part) for part in _KEPT_PARTS]))
    if size > _MAX_SETUP:
        parts = ", ".join(_KEPT_PARTS)
        problem = (INVALID, f"spec: {parts} take {size} bytes: must be at most {_MAX_SETUP}")
        spec = {}
    defaults = b"{}"
    try:
        defaults = shape_of_defaults(spec.get("mini-cluster") or {})
    except ValueError as error:
        problem = (INVALID, f"spec.mini-cluster: {error}")
    errors = validate_flux_setup(obj)
    if errors:
        problem = (INVALID, error_message(errors))
    selector: LabelSelector | None = None
    if spec.get("namespaceSelector") is not None:
        try:
            selector = LabelSelector.of(spec["namespaceSelector"])
        except SelectorError as error:
            problem = (INVALID_SELECTOR, f"spec.namespaceSelector: {error}")
        if key.namespace not in admin_namespaces:
            allowed = ", ".join(sorted(admin_namespaces))
            message = f"FluxSetups of namespace {key.namespace} must not select namespaces; allowed in: {allowed}"
            problem = (INVALID_SELECTOR, f"spec.namespaceSelector: {message}")
    policy = Policy(pods=0)
    if problem is None:
        try:
            policy = _policy(spec)
        except ValueError as error:  # the CRD's enum excludes it, but upstream's CRD has none
            problem = (INVALID, f"spec.queueingStrategy: {error}")
    metadata = obj["metadata"]
    if problem is not None:
        reason, message = problem
        problem = (reason, message[:_MAX_PROBLEM])
    return Setup(
        key=key,
        uid=uid_of(obj),
        generation=int(metadata.get("generation") or 0),
        created=str(metadata.get("creationTimestamp") or ""),
        policy=policy,
        defaults=defaults,
        kueue_queue=kueue_queue_of(spec),
        selector=selector,
        problem=problem,
    )


def _policy(spec: Mapping[str, Any]) -> Policy:
    max_size = spec.get("max-size")
    strategy = spec.get("queueingStrategy") or QueueingStrategy.BEST_EFFORT_FIFO
    return Policy(
        pods=_DEFAULT_PODS if max_size is None else int(max_size),
        jobs=spec.get("max-jobs"),
        resources=amounts_of(spec.get("resources") or {}),
        strategy=QueueingStrategy(strategy),
        shares_by_namespace=spec.get("fairness") == Fairness.NAMESPACE,
        weights=dict(spec.get("weights") or {}),
        preempts=spec.get("preemption") == Preemption.LOWER_PRIORITY,
    )


def kueue_queue_of(spec: Mapping[str, Any]) -> str:
    """Return the LocalQueue to which the spec of a FluxSetup leaves its jobs; empty if there is none."""
    if spec.get("queue") != Queue.KUEUE:
        return ""
    return str((spec.get("kueue") or {}).get("localQueue") or "")


@dataclass(slots=True)
class Governance:
    """Which setup governs which namespace.

    ``setups`` are all by their key, and ``governors`` are by namespace the key of its setup. :meth:`govern` determines
    it for one namespace, at a cost that does not grow with the number of namespaces.
    """

    setups: dict[NamespacedName, Setup] = field(default_factory=dict)
    governors: dict[str, NamespacedName] = field(default_factory=dict)
    _local: dict[str, tuple[NamespacedName, ...]] = field(default_factory=dict)
    """The setups in each namespace."""
    _selecting: dict[str, tuple[NamespacedName, ...]] = field(default_factory=dict)
    """The setups that are meant for each namespace."""
    _governed: dict[NamespacedName, dict[str, None]] = field(default_factory=dict)
    """The namespaces that each setup governs."""
    _selected: dict[NamespacedName, dict[str, None]] = field(default_factory=dict)
    """The namespaces for which each setup is meant."""

    def __contains__(self, namespace: str) -> bool:
        """Return whether it was determined who governs a namespace."""
        return namespace in self._local

    def govern(
        self,
        namespace: str,
        labels: Mapping[str, str],
        local: Sequence[Setup],
        selecting: Iterable[Setup],
    ) -> list[NamespacedName]:
        """Determine who governs a namespace; return the setups for which that changes anything.

        ``local`` are the setups in the namespace, and ``selecting`` those of all namespaces that have a selector. Both
        have the newest one first.
        """
        others = [setup for setup in selecting if setup.key.namespace != namespace]
        covering = [setup for setup in (*local, *others) if setup.covers(namespace, labels)]
        selected_by = [setup.key for setup in covering if setup.selects(namespace, labels)]
        governor = covering[0].key if covering else None
        return self._record(namespace, governor, {setup.key: setup for setup in local}, selected_by)

    def forget(self, namespace: str) -> list[NamespacedName]:
        """Forget a namespace that does not exist; return the setups for which that changes anything."""
        changed = self._record(namespace, None, {}, ())
        del self._local[namespace]
        del self._selecting[namespace]
        return changed

    def _record(
        self,
        namespace: str,
        governor: NamespacedName | None,
        local: Mapping[NamespacedName, Setup],
        selected_by: Iterable[NamespacedName],
    ) -> list[NamespacedName]:
        former = self.governors.get(namespace)
        known_local = self._local.get(namespace, ())
        known_selecting = self._selecting.get(namespace, ())
        changed = dict.fromkeys(local.keys() ^ known_local)
        if former != governor:
            changed |= dict.fromkeys(key for key in (former, governor) if key is not None)
        concerned = dict.fromkeys((*known_selecting, *selected_by, *changed))
        replaced = {key: self.replaced_by(key) for key in concerned}
        for key in known_local:
            del self.setups[key]
        self.setups |= local
        self._local[namespace] = tuple(local)
        for key in known_selecting:
            _discard(self._selected, key, namespace)
        for key in selected_by:
            self._selected.setdefault(key, {})[namespace] = None
        self._selecting[namespace] = tuple(selected_by)
        if former is not None:
            _discard(self._governed, former, namespace)
            del self.governors[namespace]
        if governor is not None:
            self._governed.setdefault(governor, {})[namespace] = None
            self.governors[namespace] = governor
        changed |= {key: None for key in concerned if self.replaced_by(key) != replaced[key]}
        return list(changed)

    def governor(self, namespace: str) -> Setup | None:
        """Return the setup that governs the namespace, if there is one."""
        key = self.governors.get(namespace)
        return self.setups[key] if key is not None else None

    def replaced_by(self, setup: NamespacedName) -> NamespacedName | None:
        """Return the newer setup because of which this one governs no namespace."""
        if setup in self._governed:
            return None
        for namespace in self._selected.get(setup, ()):
            return self.governors[namespace]
        return None

    def namespaces_of(self, setup: NamespacedName) -> list[str]:
        """Return the namespaces that the setup governs."""
        return list(self._governed.get(setup, ()))


def _discard(
    namespaces: dict[NamespacedName, dict[str, None]], setup: NamespacedName, namespace: str
) -> None:
    """Remove a namespace from those of a setup."""
    of_setup = namespaces[setup]
    del of_setup[namespace]
    if not of_setup:
        del namespaces[setup]
