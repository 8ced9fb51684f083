"""The namespace controller: deletes the content of a terminating namespace, reports progress, and finalizes it."""

from __future__ import annotations

from typing import Any, Final

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import Object
from envtest.controllers.controller import Controller
from envtest.storage import Change
from envtest.writes.server_core import Core

__all__ = ["NamespaceController"]

NAMESPACES: Final = GroupResource("", "namespaces")
PODS: Final = GroupResource("", "pods")
FINALIZER: Final = "kubernetes"


class _Progress:
    """The remaining content of a namespace, and the errors of deleting it."""

    def __init__(self) -> None:
        self.remaining: dict[GroupResource, int] = {}
        self.finalizers: dict[str, int] = {}
        self.failures: list[str] = []

    @property
    def finished(self) -> bool:
        return not self.remaining and not self.failures


class NamespaceController(Controller[str]):
    """Reconciles namespaces; keys are their names."""

    account = "namespace-controller"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._terminating: set[str] = set()
        core.registry.on_change.append(self._resources_changed)

    def _resources_changed(self) -> None:
        for name in self._terminating:
            self.queue.add(name)

    def enqueue_all(self) -> None:
        """Enqueue all terminating namespaces."""
        for record in self.client.records(NAMESPACES):
            if record.deleting:
                self._terminating.add(record.name)
                self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue terminating namespaces that changed, or whose content changed."""
        record = change.record
        if resource == NAMESPACES:
            if change.type == "DELETED":
                self._terminating.discard(record.name)
            elif record.deleting:
                self._terminating.add(record.name)
                self.queue.add(record.name)
        elif record.namespace in self._terminating:
            self.queue.add(record.namespace)

    async def reconcile(self, key: str) -> None:
        """Delete the content of the namespace; remove its finalizer when nothing is left."""
        record = self.client.record(NAMESPACES, "", key)
        if record is None or not record.deleting:
            return
        if FINALIZER not in ((record.obj().get("spec") or {}).get("finalizers") or ()):
            return
        progress = await self._empty(key)
        await self._update_status(key, record.uid, progress)
        if progress.finished:
            await self._remove_finalizer(key, record.uid)

    async def _empty(self, namespace: str) -> _Progress:
        """Request the deletion of all content: pods first, everything else when no pods are left."""
        progress = _Progress()
        infos = [info for info in self.client.infos() if info.namespaced and "delete" in info.verbs]
        infos.sort(key=lambda info: info.storage != PODS)
        for info in infos:
            await self._delete_all(info.storage, namespace, progress)
            if info.storage == PODS and PODS in progress.remaining:
                self._count_rest(infos, namespace, progress)
                break
        return progress

    async def _delete_all(
        self, resource: GroupResource, namespace: str, progress: _Progress
    ) -> None:
        for record in self.client.records(resource, namespace):
            if record.deleting:
                continue
            try:
                await self.client.delete(
                    resource, namespace, record.name, uid=record.uid, propagation="Background"
                )
            except StatusError as error:
                progress.failures.append(error.message)
        self._count(resource, namespace, progress)

    def _count_rest(self, infos: list[Any], namespace: str, progress: _Progress) -> None:
        for info in infos[1:]:
            self._count(info.storage, namespace, progress)

    def _count(self, resource: GroupResource, namespace: str, progress: _Progress) -> None:
        records = self.client.records(resource, namespace)
        if records:
            progress.remaining[resource] = len(records)
        for record in records:
            for finalizer in record.obj()["metadata"].get("finalizers") or ():
                progress.finalizers[finalizer] = progress.finalizers.get(finalizer, 0) + 1

    async def _update_status(self, name: str, uid: str, progress: _Progress) -> None:
        conditions = _conditions(progress)

        def change(namespace: Object) -> bool:
            return _set_conditions(namespace, conditions, self.client.now())

        await self.client.modify(NAMESPACES, "", name, change, uid=uid, subresource="status")

    async def _remove_finalizer(self, name: str, uid: str) -> None:
        def change(namespace: Object) -> None:
            finalizers = namespace["spec"].get("finalizers") or []
            namespace["spec"]["finalizers"] = [one for one in finalizers if one != FINALIZER]

        await self.client.modify(NAMESPACES, "", name, change, uid=uid, subresource="finalize")


def _set_conditions(namespace: Object, new_conditions: list[dict[str, str]], now: str) -> bool:
    """Set conditions in the status; return whether one changed."""
    status = namespace.setdefault("status", {})
    conditions = status.setdefault("conditions", [])
    changed = False
    for condition in new_conditions:
        existing = next((one for one in conditions if one["type"] == condition["type"]), None)
        if existing is None:
            conditions.append({**condition, "lastTransitionTime": now})
        elif {**existing, **condition} == existing:
            continue
        else:
            status_changed = existing["status"] != condition["status"]
            existing.update(condition)
            if status_changed:
                existing["lastTransitionTime"] = now
        changed = True
    return changed


def _condition(kind: str, status: bool, reason: str, message: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
    }


def _conditions(progress: _Progress) -> list[dict[str, str]]:
    """Return the conditions of a namespace, with the messages of kube-controller-manager."""
    conditions = [
        _condition(
            "NamespaceDeletionDiscoveryFailure",
            False,
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        _condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            False,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
    ]
    if progress.failures:
        text = (
            f"Failed to delete all resource types, {len(progress.failures)} remaining: "
            f"{'; '.join(progress.failures)}"
        )
        conditions.append(
            _condition("NamespaceDeletionContentFailure", True, "ContentDeletionFailed", text)
        )
    else:
        text = "All content successfully deleted, may be waiting on finalization"
        conditions.append(
            _condition("NamespaceDeletionContentFailure", False, "ContentDeleted", text)
        )
    if progress.remaining:
        counts = sorted(
            f"{r.resource}.{r.group} has {count} resource instances"
            for r, count in progress.remaining.items()
        )
        text = f"Some resources are remaining: {', '.join(counts)}"
        conditions.append(
            _condition("NamespaceContentRemaining", True, "SomeResourcesRemain", text)
        )
    else:
        conditions.append(
            _condition(
                "NamespaceContentRemaining",
                False,
                "ContentRemoved",
                "All content successfully removed",
            )
        )
    if progress.finalizers:
        counts = sorted(
            f"{name} in {count} resource instances" for name, count in progress.finalizers.items()
        )
        text = f"Some content in the namespace has finalizers remaining: {', '.join(counts)}"
        conditions.append(
            _condition("NamespaceFinalizersRemaining", True, "SomeFinalizersRemain", text)
        )
    else:
        text = "All content-preserving finalizers finished"
        conditions.append(
            _condition("NamespaceFinalizersRemaining", False, "ContentHasNoFinalizers", text)
        )
    return conditions
