"""The namespace controller: empties a namespace that is being deleted, says how far it is, and lets it go."""

from __future__ import annotations

from typing import Any, Final

from envtest.controllers.controller import Controller
from envtest.errors import GroupResource, StatusError
from envtest.objects import Object
from envtest.server_core import Core
from envtest.storage import Change

__all__ = ["NamespaceController"]

NAMESPACES: Final = GroupResource("", "namespaces")
PODS: Final = GroupResource("", "pods")
FINALIZER: Final = "kubernetes"


class _Progress:
    """What is left of a namespace's content, and what went wrong."""

    def __init__(self) -> None:
        self.remaining: dict[GroupResource, int] = {}
        self.finalizers: dict[str, int] = {}
        self.failures: list[str] = []

    @property
    def finished(self) -> bool:
        return not self.remaining and not self.failures


class NamespaceController(Controller[str]):
    """Keys are the names of namespaces."""

    account = "namespace-controller"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._going: set[str] = set()
        core.registry.on_change.append(self._resources_changed)

    def _resources_changed(self) -> None:
        for name in self._going:
            self.queue.add(name)

    def begin(self) -> None:
        """Looks at all namespaces."""
        for record in self.actor.records(NAMESPACES):
            if record.deleting:
                self._going.add(record.name)
                self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Follows namespaces, and what is in those that go."""
        record = change.record
        if resource == NAMESPACES:
            if change.type == "DELETED":
                self._going.discard(record.name)
            elif record.deleting:
                self._going.add(record.name)
                self.queue.add(record.name)
        elif record.namespace in self._going:
            self.queue.add(record.namespace)

    async def work(self, key: str) -> None:
        """Deletes what is in the namespace; removes its finalizer when nothing is left."""
        record = self.actor.record(NAMESPACES, "", key)
        if record is None or not record.deleting:
            return
        if FINALIZER not in ((record.obj().get("spec") or {}).get("finalizers") or ()):
            return
        progress = await self._empty(key)
        await self._report(key, record.uid, progress)
        if progress.finished:
            await self._release(key, record.uid)

    async def _empty(self, namespace: str) -> _Progress:
        """Asks for the deletion of all content: pods first, the rest when they are gone."""
        progress = _Progress()
        infos = [info for info in self.actor.infos() if info.namespaced and "delete" in info.verbs]
        infos.sort(key=lambda info: info.storage != PODS)
        for info in infos:
            await self._delete_all(info.storage, namespace, progress)
            if info.storage == PODS and PODS in progress.remaining:
                self._count_rest(infos, namespace, progress)
                break
        return progress

    async def _delete_all(self, resource: GroupResource, namespace: str, progress: _Progress) -> None:
        for record in self.actor.records(resource, namespace):
            if record.deleting:
                continue
            try:
                await self.actor.delete(resource, namespace, record.name, uid=record.uid, propagation="Background")
            except StatusError as error:
                progress.failures.append(error.message)
        self._count(resource, namespace, progress)

    def _count_rest(self, infos: list[Any], namespace: str, progress: _Progress) -> None:
        for info in infos[1:]:
            self._count(info.storage, namespace, progress)

    def _count(self, resource: GroupResource, namespace: str, progress: _Progress) -> None:
        left = self.actor.records(resource, namespace)
        if left:
            progress.remaining[resource] = len(left)
        for record in left:
            for finalizer in record.obj()["metadata"].get("finalizers") or ():
                progress.finalizers[finalizer] = progress.finalizers.get(finalizer, 0) + 1

    async def _report(self, name: str, uid: str, progress: _Progress) -> None:
        found = _conditions(progress)

        def change(namespace: Object) -> bool:
            return _set_conditions(namespace, found, self.actor.now())

        await self.actor.modify(NAMESPACES, "", name, change, uid=uid, subresource="status")

    async def _release(self, name: str, uid: str) -> None:
        def change(namespace: Object) -> None:
            finalizers = namespace["spec"].get("finalizers") or []
            namespace["spec"]["finalizers"] = [one for one in finalizers if one != FINALIZER]

        await self.actor.modify(NAMESPACES, "", name, change, uid=uid, subresource="finalize")


def _set_conditions(namespace: Object, found: list[dict[str, str]], now: str) -> bool:
    """Puts conditions in the status; returns whether one changed."""
    status = namespace.setdefault("status", {})
    conditions = status.setdefault("conditions", [])
    changed = False
    for condition in found:
        existing = next((one for one in conditions if one["type"] == condition["type"]), None)
        if existing is None:
            conditions.append({**condition, "lastTransitionTime": now})
        elif {**existing, **condition} == existing:
            continue
        else:
            moved = existing["status"] != condition["status"]
            existing.update(condition)
            if moved:
                existing["lastTransitionTime"] = now
        changed = True
    return changed


def _condition(kind: str, status: bool, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": "True" if status else "False", "reason": reason, "message": message}


def _conditions(progress: _Progress) -> list[dict[str, str]]:
    """The conditions of a namespace, in the words of the real controller."""
    conditions = [
        _condition(
            "NamespaceDeletionDiscoveryFailure", False, "ResourcesDiscovered", "All resources successfully discovered"
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
            f"Failed to delete all resource types, {len(progress.failures)} remaining: {'; '.join(progress.failures)}"
        )
        conditions.append(_condition("NamespaceDeletionContentFailure", True, "ContentDeletionFailed", text))
    else:
        text = "All content successfully deleted, may be waiting on finalization"
        conditions.append(_condition("NamespaceDeletionContentFailure", False, "ContentDeleted", text))
    if progress.remaining:
        counts = sorted(
            f"{r.resource}.{r.group} has {count} resource instances" for r, count in progress.remaining.items()
        )
        text = f"Some resources are remaining: {', '.join(counts)}"
        conditions.append(_condition("NamespaceContentRemaining", True, "SomeResourcesRemain", text))
    else:
        conditions.append(
            _condition("NamespaceContentRemaining", False, "ContentRemoved", "All content successfully removed")
        )
    if progress.finalizers:
        counts = sorted(f"{name} in {count} resource instances" for name, count in progress.finalizers.items())
        text = f"Some content in the namespace has finalizers remaining: {', '.join(counts)}"
        conditions.append(_condition("NamespaceFinalizersRemaining", True, "SomeFinalizersRemain", text))
    else:
        text = "All content-preserving finalizers finished"
        conditions.append(_condition("NamespaceFinalizersRemaining", False, "ContentHasNoFinalizers", text))
    return conditions
