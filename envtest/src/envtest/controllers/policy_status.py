"""The status controller of ValidatingAdmissionPolicies: reports the type errors of their expressions."""

from __future__ import annotations

from typing import Any, Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.controllers.controller import Controller
from envtest.storage import Change

__all__ = ["PolicyStatus"]

POLICIES: Final = GroupResource("admissionregistration.k8s.io", "validatingadmissionpolicies")


class PolicyStatus(Controller[str]):
    """Reconciles ValidatingAdmissionPolicies once for each generation; keys are their names."""

    account = "validatingadmissionpolicy-status-controller"
    manager = "validatingadmissionpolicy-status-controller"

    def enqueue_all(self) -> None:
        """Enqueue all policies."""
        for record in self.client.records(POLICIES):
            self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a policy that changed."""
        if resource == POLICIES and change.type != "DELETED":
            self.queue.add(change.record.name)

    async def reconcile(self, key: str) -> None:
        """Check a policy unless its generation was checked."""
        policy = await self.client.read(POLICIES, "", key)
        if policy is None or not _is_unchecked(policy):
            return
        from envtest.admission.policy_types import expression_warnings  # the CEL library

        warnings = expression_warnings(policy, self.core.registry)
        checking: dict[str, Any] = {"expressionWarnings": warnings} if warnings else {}

        def change(obj: Object) -> bool:
            if obj["metadata"].get("generation") != policy["metadata"].get("generation"):
                return False
            obj["status"] = {**(obj.get("status") or {}), "typeChecking": checking}
            obj["status"]["observedGeneration"] = policy["metadata"].get("generation") or 0
            return True

        await self.client.modify(
            POLICIES, "", key, change, uid=policy["metadata"]["uid"], subresource="status"
        )


def _is_unchecked(policy: Object) -> bool:
    observed: int = (policy.get("status") or {}).get("observedGeneration") or 0
    return bool((policy["metadata"].get("generation") or 0) > observed)
