"""Deletes objects and removes finalizers and conditions, one at a time, and reports each."""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import anyio

from cfo.config.part import Part
from cfo.console.conditions import without_conditions
from cfo.console.uninstall.stored_objects import MAX_NAMED, list_keys, named, select_objects
from cfo.features import KINDS, all_views
from cfo.runtime import (
    GVK,
    POD,
    Client,
    Conflict,
    NamespacedName,
    NotFound,
    Object,
    UnknownKind,
    has_finalizer,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    set_finalizer,
)
from cfo.runtime.process import UnreadableObject
from cfo.summaries.kind_view import summarize

_POLL_INTERVAL = 0.5  # seconds

_MAX_CONFLICTS = 20
"""How often the removal of a finalizer is tried while other clients change the object."""


class UninstallIncomplete(Exception):
    """:func:`.uninstall` did not do everything that was asked for; the message is one line, and others have details."""


class Removal:
    """Deletes objects and removes finalizers, or, in a dry run, only reports which."""

    def __init__(self, client: Client, report: Callable[[str], None], dry_run: bool) -> None:
        self._client = client
        self._report = report
        self._dry_run = dry_run
        self._planned: set[tuple[GVK, NamespacedName]] = set()
        self._waited: list[tuple[GVK, Mapping[str, str]]] = []
        """What still existed after the time to wait for it: kinds and options that select their objects."""
        self._problems = 0
        self.has_found = False
        """Whether an object or a finalizer was removed, or would be."""

    async def delete(self, gvk: GVK, key: NamespacedName) -> None:
        """Delete an object if it exists."""
        try:
            if self._dry_run:
                await self._plan_deletion(gvk, key)
            elif await self._client.delete(gvk, key):
                self.has_found = True
                self._report(f"deleted {gvk.kind} {key}")
        except (UnknownKind, NotFound):
            return

    async def _plan_deletion(self, gvk: GVK, key: NamespacedName) -> None:
        if (gvk, key) in self._planned:
            return
        # Users can create objects that are nested too deeply to be read as a whole.
        if await self._client.get_metadata(gvk, key) is not None:
            self._planned.add((gvk, key))
            self.has_found = True
            self._report(f"would delete {gvk.kind} {key}")

    async def wait_for_deletion(self, gvk: GVK, timeout: float, **options: str) -> None:
        """Wait until no object that ``options`` select exists, for at most ``timeout`` seconds."""
        if self._dry_run:
            return
        left: list[NamespacedName] = []
        with anyio.move_on_after(timeout):
            while True:
                left = await list_keys(self._client, gvk, **options)
                if not left:
                    return
                await anyio.sleep(_POLL_INTERVAL)
        self._waited.append((gvk, options))
        for key in left[:MAX_NAMED]:
            why = await self._pending(gvk, key)
            if why:
                self._report(f"still not deleted after {timeout:g} s: {gvk.kind} {key} {why}")

    async def _pending(self, gvk: GVK, key: NamespacedName) -> str:
        """Return what the deletion of an object waits for, as far as it is known; empty if it was deleted."""
        for view in all_views():
            if view.gvk == gvk:
                try:
                    obj = await self._client.get(gvk, key, live=True)
                except UnreadableObject:
                    break
                return summarize(view, obj).pending if obj is not None else ""
        return "still exists"

    async def remove_finalizer(self, gvk: GVK, key: NamespacedName, finalizer: str) -> None:
        """Remove our finalizer from an object."""

        async def remove(obj: Object) -> bool:
            try:
                return await set_finalizer(self._client, obj, finalizer, present=False) is not None
            except UnreadableObject:
                return True  # it was stored; only the response is nested too deeply

        is_removed = await self._remove_part(
            gvk,
            key,
            f"finalizer {finalizer}",
            read=self._client.get_metadata,
            is_present=lambda obj: has_finalizer(obj, finalizer),
            remove=remove,
        )
        if is_removed:
            self._report(f"{self._removed()} finalizer {finalizer} from {gvk.kind} {key}")

    async def remove_conditions(
        self, gvk: GVK, keys: Iterable[NamespacedName], types: Collection[str]
    ) -> None:
        """Remove our conditions, those of ``types``, from the status of objects; they are reported in one line."""

        async def remove(obj: Object) -> bool:
            status = {"conditions": without_conditions(obj, types)["status"]["conditions"]}
            try:
                await self._client.patch_object(
                    obj, {"status": status}, unchanged=True, subresource="status"
                )
            except NotFound:
                return False
            return True

        part = "the operator's conditions"
        changed: list[NamespacedName] = []
        for key in keys:
            is_removed = await self._remove_part(
                gvk,
                key,
                part,
                read=partial(self._client.get, live=True),
                is_present=lambda obj: without_conditions(obj, types) is not obj,
                remove=remove,
            )
            if is_removed:
                changed.append(key)
        if changed:
            self._report(f"{self._removed()} {part} from {named(gvk, changed)}")

    def _removed(self) -> str:
        return "would remove" if self._dry_run else "removed"

    async def _remove_part(
        self,
        gvk: GVK,
        key: NamespacedName,
        part: str,
        *,
        read: Callable[[GVK, NamespacedName], Awaitable[Object | None]],
        is_present: Callable[[Object], bool],
        remove: Callable[[Object], Awaitable[bool]],
    ) -> bool:
        """Remove ``part`` of an object, and return whether it was removed (in a dry run: would be).

        If another client has changed the object concurrently, this is tried again; after :data:`_MAX_CONFLICTS`
        attempts, it is reported. ``remove`` returns whether the object still existed. One that is nested too deeply for
        ``read`` is reported, too: users can create such, and the others have to be changed nevertheless.
        """
        for _ in range(_MAX_CONFLICTS):
            try:
                obj = await read(gvk, key)
            except UnreadableObject as error:
                self._problems += 1
                self._report(f"not removed: {part} of {gvk.kind} {key}: {error}")
                return False
            if obj is None or not is_present(obj):
                return False
            self.has_found = True
            if self._dry_run:
                return True
            try:
                return await remove(obj)
            except Conflict:
                continue
        self._problems += 1
        self._report(
            f"not removed: {part} of {gvk.kind} {key}: changed by other clients {_MAX_CONFLICTS} times"
        )
        return False

    async def report_orphans(self, parts: Iterable[Part], foreign: Collection[GVK]) -> None:
        """Report objects with our finalizers that are in none of ``parts``, which other operators reconcile.

        Those of ``foreign`` kinds are left out: an operator that is not ours may reconcile them.
        """
        parts = list(parts)
        for kind in KINDS:
            for gvk, finalizer in kind.finalizers().items():
                if gvk in foreign:
                    continue
                has_selector = gvk in kind.gvks and not kind.shared
                orphan = partial(_orphan, parts, finalizer, has_selector=has_selector)
                orphans = await select_objects(self._client, gvk, orphan)
                if orphans:
                    self._problems += 1
                    keys = [key for key, _ in orphans]
                    self._report(
                        f"no operator removes the finalizer {finalizer} of {named(gvk, keys)} any more: let another "
                        "operator reconcile them (watchNamespaces and labelSelector in its ConfigMap), or remove it "
                        f"from each; {_removal_command(gvk, finalizer, orphans)}"
                    )

    async def report_kept_finalizers(self, foreign: Collection[GVK]) -> None:
        """Report objects of ``foreign`` kinds with the finalizer that we share with other operators."""
        kept = "would keep" if self._dry_run else "kept"
        for kind in KINDS:
            for gvk, finalizer in kind.finalizers().items():
                if gvk not in foreign:
                    continue
                orphan = partial(_orphan, (), finalizer, has_selector=False)
                objects = await select_objects(self._client, gvk, orphan)
                if objects:
                    keys = [key for key, _ in objects]
                    self._report(
                        f"{kept} the finalizer {finalizer} of {named(gvk, keys)}, because the CRD lacks the labels of "
                        "our manifests, so another operator may need it; if none does, remove it from each; "
                        f"{_removal_command(gvk, finalizer, objects)}"
                    )

    def report_kept_crd(self, name: str) -> None:
        """Report a CRD with the name of one of ours that is kept with its objects."""
        kept = "would keep" if self._dry_run else "kept"
        self._report(
            f"{kept} CustomResourceDefinition {name} with its objects, because another operator may need it; if none "
            f"does, delete both: kubectl delete crd {name}"
        )

    async def conclude(self) -> None:
        """Report what still exists of what had to be deleted; raise :class:`UninstallIncomplete` for any problem."""
        for gvk, options in self._waited:
            keys = await select_objects(
                self._client, gvk, key_of if gvk == POD else _key_of_remaining, **options
            )
            if keys:
                self._problems += 1
                self._report(f"not deleted: {named(gvk, keys)}")
        if self._problems and not self._dry_run:
            raise UninstallIncomplete(
                "the operator was removed, but not everything that belongs to it: the lines above say what is left"
            )


def _key_of_remaining(obj: Object) -> NamespacedName | None:
    """Return the key of an object, unless the API server deletes it, because no finalizer is left."""
    if is_deleting(obj) and not obj["metadata"].get("finalizers"):
        return None
    return key_of(obj)


def _removal_command(
    gvk: GVK, finalizer: str, objects: Sequence[tuple[NamespacedName, int]]
) -> str:
    """Return how the finalizer is removed from the first of ``objects``: keys, and its position in the list of each."""
    key, index = min(objects)
    # The patch names the position in the list; its test fails if another finalizer is there.
    position = f"/metadata/finalizers/{index}"
    patch = [
        {"op": "test", "path": position, "value": finalizer},
        {"op": "remove", "path": position},
    ]
    return (
        "the path has its position among the finalizers of the object: kubectl "
        f"--namespace {key.namespace} patch {gvk.kind.lower()}.{gvk.group} {shlex.quote(key.name)} --type=json "
        f"-p {shlex.quote(json.dumps(patch))}"
    )


def _orphan(
    parts: Sequence[Part], finalizer: str, obj: Object, *, has_selector: bool
) -> tuple[NamespacedName, int] | None:
    """Return the key of an object with our finalizer that is in none of ``parts``, and the finalizer's position."""
    if not has_finalizer(obj, finalizer):
        return None
    labels = labels_of(obj) if has_selector else None
    if any(part.covers(namespace_of(obj), labels) for part in parts):
        return None
    return key_of(obj), obj["metadata"]["finalizers"].index(finalizer)
