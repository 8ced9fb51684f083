"""Reports stacks that no operator reconciles, or that several do.

An operator reconciles the stacks whose label ``operatorVersion`` names its major version. A stack without a label, or
of a version that no operator serves, is in no operator's cache; so this controller reads the metadata of all stacks.
Exactly one operator reports: that of the highest version that has a Lease, and of several, the one in the first
namespace.

A report is the condition ``Claimed=False``, an Event when it becomes false, and a metric. The condition has a field
manager of its own, so it does not conflict with the status that the operator of the stack writes, and applying nothing
removes it. A status whose conditions another manager owns as a whole, as with the CRD of the original operator, which
has no schema, is left as it is.

An operator without leader election holds no Lease, so others of its kind do not know it. Therefore such an operator
does not report a stack whose status was written by an operator of its version, and gives one time to do so.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from cfo.api.inferencestack.kinds import OPERATOR_VERSION_LABEL
from cfo.api.inferencestack.names import CLAIMS_FIELD_MANAGER
from cfo.controllers.inferencestack.metrics import ClaimMetrics
from cfo.controllers.inferencestack.operator_leases import OperatorLeases
from cfo.controllers.left_out import stored_or_live
from cfo.runtime import (
    GVK,
    Client,
    Clock,
    Conflict,
    Entry,
    EventRecorder,
    Forbidden,
    Informer,
    Invalid,
    NotFound,
    Object,
    Request,
    Result,
    find_condition,
    rfc3339,
    set_condition,
    uid_of,
)
from cfo.runtime.cache import Meta
from cfo.runtime.client import identity_of

GRACE_SECONDS: Final = 45.0
"""How long a major version must be without operators, or have several, before its stacks are reported: an operator
that restarts has no Lease for some seconds."""

_CONDITION: Final = "Claimed"
_UNCLAIMED: Final = "Unclaimed"
_CLAIMED_TWICE: Final = "ClaimedTwice"

_log = structlog.get_logger("cfo.controllers.inferencestack.claims")


class _Problem(msgspec.Struct, frozen=True):
    """Reason and message of the condition, and the message of the Event, which also contains what changes often."""

    reason: str
    message: str
    note: str


@dataclass(frozen=True, eq=False)
class ClaimReconciler:
    """Reports the stacks of one API group; ``stacks`` caches the metadata of all of them.

    ``version`` and ``namespace`` are those of this operator's Lease; ``is_elected``: whether it holds that Lease.
    """

    rules = OperatorLeases.rules

    kind: GVK
    stacks: Informer
    leases: OperatorLeases
    client: Client
    events: EventRecorder
    metrics: ClaimMetrics
    clock: Clock
    version: str
    namespace: str
    is_elected: bool
    _written: dict[Request, tuple[str, _Problem]] = field(default_factory=dict, init=False)
    _seen: dict[Request, tuple[str, float]] = field(default_factory=dict, init=False)
    """The version of stacks without a known operator, and since when they have it."""

    async def reconcile(self, request: Request) -> Result:
        """Report a stack that no operator reconciles, or several; end the report of any other."""
        await self.leases.verify()
        entry = await stored_or_live(self.client, self.stacks, request)
        live = self.leases.live()
        is_reporter = _reporter(live) == (self.version, self.namespace)
        if entry is None or entry.meta.is_deleting or not is_reporter:
            self._forget(request)
            return Result()
        version = entry.meta.labels.get(OPERATOR_VERSION_LABEL, "")
        problem = _problem(version, live)
        if problem is None:
            self._forget(request)
            if _has_condition(entry):
                await self._remove_condition(entry.object())
            return Result()
        wait = GRACE_SECONDS - self.leases.unchanged_seconds(version)
        if not self.is_elected:
            wait = max(wait, GRACE_SECONDS - self._seconds_with(version, request))
        if wait > 0:
            return Result(requeue_after=wait)
        if not self.is_elected and await self._is_reconciled(request, version):
            self._forget_report(request)
            return Result()
        is_new = self.metrics.set(self.kind, request, problem.reason)
        if self._written.get(request) != (entry.meta.uid, problem):
            is_new = await self._set_condition(request, entry.meta, problem, is_new)
            self._written[request] = (entry.meta.uid, problem)
            if is_new:
                stack = identity_of(entry.object())
                self.events.event(stack, "Warning", problem.reason, problem.note)
        return Result()

    def _seconds_with(self, version: str, request: Request) -> float:
        """Return for how long a stack has had this version, as far as that was observed."""
        now = self.clock.monotonic()
        known = self._seen.get(request)
        if known is None or known[0] != version:
            known = self._seen[request] = (version, now)
        return now - known[1]

    async def _is_reconciled(self, request: Request, version: str) -> bool:
        """Return whether an operator of ``version`` has written the status of a stack; it may run without a Lease.

        The original operator, which writes no version of its own, counts as one of any version.
        """
        if not version:
            return False
        stack = await self.client.get(self.kind, request, live=True)
        status = (stack or {}).get("status") or {}
        if all(each.get("type") == _CONDITION for each in status.get("conditions") or ()):
            return False
        return ((status.get("operator") or {}).get("major") or version) == version

    def _forget(self, request: Request) -> None:
        self._seen.pop(request, None)
        self._forget_report(request)

    def _forget_report(self, request: Request) -> None:
        self._written.pop(request, None)
        self.metrics.set(self.kind, request, "")

    async def _set_condition(
        self, request: Request, meta: Meta, problem: _Problem, is_new: bool
    ) -> bool:
        """Write the condition; return whether the stack did not have it for this reason.

        Returns ``is_new`` if the condition cannot be written.
        """
        stack = await self.client.get(self.kind, request, live=True)
        if stack is None or uid_of(stack) != meta.uid:
            return False
        before = find_condition((stack.get("status") or {}).get("conditions"), _CONDITION) or {}
        known = {key: before[key] for key in ("status", "lastTransitionTime") if key in before}
        condition = {
            "type": _CONDITION,
            "status": "False",
            "reason": problem.reason,
            "message": problem.message,
        }
        if all(before.get(key) == value for key, value in condition.items()):
            return False
        conditions = [{"type": _CONDITION, **known}] if known else []
        set_condition(
            conditions,
            {**condition, "observedGeneration": meta.generation},
            now=rfc3339(self.clock.now()),
        )
        try:
            await self._apply({**identity_of(stack), "status": {"conditions": conditions}})
        except (Conflict, Invalid, Forbidden) as error:
            _log.info(
                "Condition not written", condition=_CONDITION, object=str(request), error=str(error)
            )
            return is_new
        return before.get("status") != "False" or before.get("reason") != problem.reason

    async def _remove_condition(self, stack: Object) -> None:
        with suppress(Conflict, NotFound):  # the stack was deleted, and perhaps created again
            await self._apply(identity_of(stack))

    async def _apply(self, obj: Object) -> None:
        # not forced: it would replace all conditions if the schema does not make them a map
        await self.client.apply(
            obj, subresource="status", field_manager=CLAIMS_FIELD_MANAGER, force=False
        )


def _has_condition(entry: Entry) -> bool:
    """Return whether the condition was written, by this operator or another."""
    return any(
        item.get("manager") == CLAIMS_FIELD_MANAGER and "f:status" in (item.get("fieldsV1") or {})
        for item in entry.managers
    )


def _reporter(live: dict[str, list[str]]) -> tuple[str, str] | None:
    """Return version and namespace of the operator that reports."""
    if not live:
        return None
    version = max(live, key=lambda item: int(item.removeprefix("v")))
    return version, live[version][0]


def _problem(version: str, live: dict[str, list[str]]) -> _Problem | None:
    serving = live.get(version, [])
    if len(serving) == 1:
        return None
    running = ", ".join(sorted(live))
    if serving:
        where = ", ".join(serving)
        message = f"Operators in several namespaces reconcile version {version}: {where}. Remove all but one."
        return _Problem(_CLAIMED_TWICE, message, message)
    if not version:
        message = "The label operatorVersion is not set, so no operator reconciles it."
        return _Problem(_UNCLAIMED, message, f"{message} Running: {running}.")
    message = f"No operator of version {version} is running."
    return _Problem(_UNCLAIMED, message, f"{message} Set the label operatorVersion to: {running}.")
