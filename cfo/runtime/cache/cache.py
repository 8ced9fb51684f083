"""The cache: creates, runs and shares the informers of a process.

Two requests share an informer if the kind, the selectors, the namespaces and metadata-only are equal. Two informers of
one kind with different selectors are two watches: choose one selector per kind for the whole process.

The client uses the cache as a :class:`~cfo.runtime.client.object_cache.ClientCache`: reads that an informer can serve
make no request, and the response to a write can be read immediately.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.abc
import msgspec
import structlog

from cfo.runtime.cache.budget import NAMESPACE_BYTES, TOTAL_BYTES, ByteBudget
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer, Reader
from cfo.runtime.cache.reflector import ReflectorOptions
from cfo.runtime.cache.selectors import (
    MAX_BYTES,
    BudgetFunction,
    FieldSelector,
    LabelSelector,
    Requirement,
    Selection,
)
from cfo.runtime.cache.store import NAMESPACE_TOO_LARGE, LeftOut
from cfo.runtime.cache.unavailable_namespaces import UnavailableNamespaces
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.object_cache import ClientCache, StoredObject
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.kinds import SECRET
from cfo.runtime.objects.unstructured import (
    GVK,
    ByKind,
    NamespacedName,
    ObjectKind,
    require_kind,
    require_namespace,
)
from cfo.runtime.process import function_errors
from cfo.runtime.process.arguments import InvalidArgument, require_plain_function, require_type
from cfo.runtime.process.clock import Clock, SystemClock
from cfo.runtime.process.nested_json import UnreadableObject
from cfo.runtime.process.strings import require_strings

MAX_UNCERTAIN: Final = 10_000
"""The maximum number of objects whose next read must go to the API server; the oldest are evicted first."""

_log = structlog.get_logger(__name__)


class Cache(ClientCache):
    """Creates, shares and runs informers.

    ``field_managers`` are our own field managers: their managedFields entries are kept for :meth:`stored`.
    ``namespaces`` restricts all informers of namespaced kinds to these namespaces (``None``: all namespaces); each is
    listed and watched separately, so permissions in these namespaces are sufficient, and one without them is left out
    (see :mod:`cfo.runtime.cache.unavailable_namespaces`). ``selectors`` are label selectors by kind: other objects of
    that kind are invisible to the cache. ``options`` are settings of list and watch. Secrets
    are never cached cluster-wide: their informers require a selector, a namespace, or metadata-only.

    ``namespace_bytes`` is how many bytes all informers together may hold for one namespace, objects and their indexes.
    ``total_bytes`` is the same for all namespaces together: the less is free, the less may one namespace hold (see
    :mod:`cfo.runtime.cache.budget`). Objects that do not fit are left out, as those that are too large. Choose both so
    that the users of some namespaces cannot take the memory of all others.
    """

    def __init__(
        self,
        transport: Transport,
        mapper: RESTMapper,
        *,
        field_managers: Collection[str] = (),
        namespaces: Collection[str] | None = None,
        selectors: ByKind[str] | None = None,
        clock: Clock | None = None,
        options: ReflectorOptions | None = None,
        namespace_bytes: int = NAMESPACE_BYTES,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        if namespace_bytes < 1:
            raise ValueError(f"namespace_bytes: {namespace_bytes}: must be 1 or more")
        if total_bytes < 1:
            raise ValueError(f"total_bytes: {total_bytes}: must be 1 or more")
        self.budget = ByteBudget(namespace_bytes, total_bytes)
        self.unavailable = UnavailableNamespaces()
        """The namespaces that are left out, because a permission is missing only there."""
        self._transport = transport
        self._mapper = mapper
        self._field_managers = frozenset(field_managers)
        require_strings("namespaces", namespaces)
        require_strings("field_managers", field_managers)
        self._namespaces = tuple(sorted(namespaces)) if namespaces else ("",)
        self._selectors: dict[GVK, LabelSelector] = {}
        if selectors is not None:
            for kind, text in selectors.items():
                gvk = require_kind("selectors", kind)
                if text:
                    self._selectors[gvk] = LabelSelector.of(text)
        self._clock = clock or SystemClock()
        self._options = options or ReflectorOptions()

        self._informers: dict[tuple[GVK, Selection], Informer] = {}
        self._of_kind: dict[GVK, list[Informer]] = {}
        self._unlabelled: set[Informer] = set()
        """The informers without a label selector of their own, in addition to that of the cache."""
        self._scopes: dict[Informer, anyio.CancelScope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._report: Callable[[GVK, LeftOut], None] | None = None
        self._owned: set[tuple[str, str, GVK]] = set()
        """The group and kind of an owner, and the kind of children whose events its controller expects."""
        self._unselected: set[tuple[str, str, GVK]] = set()
        """Those of which a child that no informer has was reported."""
        self._uncertain: OrderedDict[tuple[GVK, NamespacedName], None] = OrderedDict()

    # Informers.

    def informer(
        self,
        kind: ObjectKind[Any],
        *,
        label_selector: str | Mapping[str, Any] | LabelSelector = "",
        field_selector: str | FieldSelector = "",
        namespace: str = "",
        other_namespaces: bool = False,
        metadata_only: bool = False,
        fields: Collection[str] = (),
        max_bytes: int = MAX_BYTES,
        budget_of: BudgetFunction | None = None,
    ) -> Informer:
        """Return the informer of this kind and selection; an empty namespace means all namespaces of the cache.

        It holds JSON: also with a class as ``kind``, its reader and entries return dicts (``Website.decode(obj)``).

        With ``other_namespaces`` it is the opposite for a cache that is restricted to some: all other namespaces, in
        one list and watch, which requires permissions in the whole cluster. Use it for facts of the cluster, such as
        who has a host. The client does not read from such an informer.

        With ``fields``, dotted paths as ``spec.parallelism``, only the metadata and these fields of each object are
        stored. The client does not read from such an informer, as from a metadata-only one.

        Objects of which more than ``max_bytes`` bytes of JSON would be stored are not in the cache; each is logged
        once. The default is more than API servers store. Set a smaller one for objects that any user can create and
        enlarge, and expect that an object that is not in the cache can exist: creating it then fails.

        ``budget_of`` returns the namespace in whose memory budget a cluster-scoped object counts if users can create
        it.

        If there is none, a new informer is created, and started immediately if the cache is running. It runs until
        :meth:`remove`. Raises :class:`ValueError` for an invalid selector or size, for a namespace outside the
        cache's namespaces, for ``other_namespaces`` if there are none or together with ``namespace``, and for a
        cluster-wide informer of a kind that must not be cached cluster-wide (Secrets).
        """
        gvk = require_kind("informer", kind)
        require_namespace("informer", namespace)
        require_type(
            "informer: label_selector",
            label_selector,
            str | Mapping | LabelSelector,
            "a string, such as app=web",
        )
        require_type(
            "informer: field_selector",
            field_selector,
            str | FieldSelector,
            "a string, such as metadata.name=a",
        )
        require_type("informer: max_bytes", max_bytes, int, "a number of bytes, such as 3 << 20")
        if max_bytes < 1:
            raise ValueError(f"max_bytes: {max_bytes}: must be 1 or more")
        if namespace and self.is_restricted and namespace not in self._namespaces:
            raise ValueError(
                f"namespace {namespace!r}: the cache is restricted to {', '.join(self._namespaces)}"
            )
        namespaces = (namespace,) if namespace else self._namespaces
        field_selector = FieldSelector.of(field_selector)
        unlimited = Selection()
        if other_namespaces:
            if namespace or not self.is_restricted:
                raise ValueError(
                    "other_namespaces: requires a cache for some namespaces, and no namespace"
                )
            namespaces = ("",)
            field_selector = field_selector.excluding(self._namespaces)
            unlimited = replace(unlimited, field_selector=field_selector)
        selection = Selection.of(
            label_selector=self._restrict(gvk, LabelSelector.of(label_selector)),
            field_selector=field_selector,
            namespaces=namespaces,
            metadata_only=metadata_only,
            fields=fields,
            max_bytes=max_bytes,
            budget_of=budget_of,
        )
        existing = self._informers.get((gvk, selection))
        if existing is not None:
            return existing

        is_unlimited = replace(selection, fields=(), max_bytes=MAX_BYTES) == unlimited
        if gvk == SECRET and is_unlimited:
            raise ValueError(
                f"{gvk}: must not be cached for the whole cluster; set label_selector, namespace or metadata_only"
            )
        informer = Informer(
            self._transport,
            self._mapper,
            gvk,
            selection,
            field_managers=self._field_managers,
            clock=self._clock,
            options=self._options,
            report_left_out=self._report_left_out,
            report_restore=self._rebuild,
            budget=self.budget,
            unavailable=self.unavailable,
        )
        self._informers[gvk, selection] = informer
        self._of_kind.setdefault(gvk, []).append(informer)
        if selection.label_selector == self._restriction(gvk):
            self._unlabelled.add(informer)
        if self._tasks is not None:
            self._tasks.start_soon(self._run_informer, informer)
        return informer

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces to which the cache is restricted; ``("",)`` for all."""
        return self._namespaces

    @property
    def is_restricted(self) -> bool:
        """Whether the cache is restricted to some namespaces."""
        return self._namespaces != ("",)

    @property
    def informers(self) -> Collection[Informer]:
        """All informers."""
        return list(self._informers.values())

    def remove(self, informer: Informer) -> None:
        """Stop an informer and forget its objects, although it may be used.

        Its handlers are no longer called, and its readers raise :class:`LookupError`. Reads of a client go to the API
        server. The next :meth:`informer` with the same parameters creates a new one, without indexes and handlers.
        """
        for identity, existing in list(self._informers.items()):
            if existing is informer:
                del self._informers[identity]
                self._of_kind[informer.gvk].remove(informer)
                self._unlabelled.discard(informer)
        scope = self._scopes.get(informer)
        if scope is not None:
            scope.cancel()
        informer.drop()

    def report_left_out(self, report: Callable[[GVK, LeftOut], None]) -> None:
        """Call ``report`` with each object that is too large, or one too many in its namespace, now or later.

        Of the objects that do not fit into the budget of a namespace, one is reported.
        """
        require_plain_function(
            "report_left_out", report, "a function of the kind and what is left out"
        )
        self._report = report
        namespaces: set[str] = set()
        for informer in self.informers:
            for found in informer.store.left_out:
                if found.reason == NAMESPACE_TOO_LARGE:
                    if found.namespace in namespaces:
                        continue
                    namespaces.add(found.namespace)
                report(informer.gvk, found)

    def wake(self, gvk: GVK) -> None:
        """Make informers that wait for this kind repeat discovery immediately, because the kind may be served now."""
        for informer in self._of_kind.get(gvk, ()):
            informer.wake()

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Run all informers, existing and future ones, until cancelled.

        Start it in the manager's task group. It reports through ``task_status`` that the informers have been started,
        not that they have synced.
        """
        try:
            async with anyio.create_task_group() as self._tasks:
                for informer in self.informers:
                    self._tasks.start_soon(self._run_informer, informer)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._tasks = None

    async def _run_informer(self, informer: Informer) -> None:
        if informer not in self._of_kind[informer.gvk]:
            return  # removed before its task began
        with anyio.CancelScope() as scope:
            self._scopes[informer] = scope
            try:
                await informer.run()
            finally:
                del self._scopes[informer]

    async def wait_for_sync(self) -> None:
        """Wait until every informer has completed its first list; :attr:`Informer.problem` says why one does not."""
        for informer in self.informers:
            await informer.wait_for_sync()

    def expect_children(self, owner: GVK, gvk: GVK) -> None:
        """Declare that a controller of ``owner`` expects events of children with the kind ``gvk``."""
        self._owned.add((owner.group, owner.kind, gvk))

    # For the client (cfo.runtime.client.object_cache.ClientCache).

    def check_child(
        self, owner: GVK, gvk: GVK, key: NamespacedName, labels: Mapping[str, str]
    ) -> None:
        """Log once for a kind if no informer has a child of an owner that a controller reconciles.

        A child that the selector of ``owns`` leaves out also fails the test. One of a kind that nothing watches does
        not, because a program may do without its events.
        """
        kinds = (owner.group, owner.kind, gvk)
        if kinds in self._unselected:
            return
        selections = [informer.selection for informer in self._of_kind.get(gvk, ())]
        if not selections and self._of_kind.get(owner):
            self._unselected.add(kinds)
            message = (
                f"{gvk.kind} {key}: no controller watches this kind: its changes and its deletion are not seen; add "
                f"owns({gvk}) to the controller of {owner.kind}"
            )
            _log.warning("Child is not watched", error=message)
            return
        if kinds not in self._owned:
            return
        if any(selection.covers(key, labels) for selection in selections):
            return
        self._unselected.add(kinds)
        limits = " or ".join(sorted({selection.limits for selection in selections}))
        message = (
            f"{gvk.kind} {key}: not selected by owns({gvk}) of the controller of {owner.kind}, which has {limits}: its "
            "changes and its deletion are not seen"
        )
        _log.warning("Child is not watched", error=message)
        function_errors.report(InvalidArgument(message), f"reconcile_children for {owner.kind}")

    def covering_reader(self, gvk: GVK, namespace: str, label_selector: str = "") -> Reader | None:
        """Return the reader of :meth:`covering_informer`, or ``None``."""
        informer = self.covering_informer(gvk, namespace, label_selector)
        return informer.reader if informer is not None else None

    def covering_informer(
        self, gvk: GVK, namespace: str, label_selector: str = ""
    ) -> Informer | None:
        """Return a synced informer that holds all objects of the namespace that ``label_selector`` matches.

        It is neither metadata-only nor limited to some fields, has no field selector and the default size limit, and
        each requirement in its label selector is in ``label_selector`` or in the selector of the cache. It can lack
        objects of namespaces that are too large (see :meth:`Reader.is_complete`). An empty namespace means all objects
        of all namespaces to which the cache is restricted.
        """
        informers = self._of_kind.get(gvk)
        if not informers:
            return None  # most kinds are only written, and their selectors need not be parsed
        required: Collection[Requirement] = ()
        if label_selector:
            labels = LabelSelector.of(label_selector)
            required = {*self._restriction(gvk).requirements, *labels.requirements}
        for informer in informers:
            selection = informer.selection
            if informer.is_partial or informer.is_selective:
                continue
            if informer not in self._unlabelled:
                if not required:
                    continue
                if not set(selection.label_selector.requirements).issubset(required):
                    continue
            if not informer.has_synced:
                continue
            if namespace:
                is_watched = informer.watches_namespace(namespace)
            else:
                is_watched = selection.namespaces == self._namespaces
            if is_watched:
                return informer
        return None

    def stored(
        self, gvk: GVK, key: NamespacedName, *, partial: bool = False
    ) -> StoredObject | None:
        """Return the newest state of the object in any informer; with ``partial``, at least its metadata."""
        newest = self._newest_entry(gvk, key, is_partial=False)
        is_partial = newest is None
        if newest is None and partial:
            newest = self._newest_entry(gvk, key, is_partial=True)
        if newest is None:
            return None
        newest.keep_meta()  # decoded once for both properties
        meta = newest.meta
        managers = newest.managers
        newest.drop_meta()
        return StoredObject(newest.raw, managers, meta.uid, meta.resource_version, is_partial)

    def _newest_entry(self, gvk: GVK, key: NamespacedName, *, is_partial: bool) -> Entry | None:
        newest: Entry | None = None
        for informer in self._of_kind.get(gvk, ()):
            if informer.is_partial is not is_partial:
                continue
            entry = informer.store.get(key)
            if entry is not None and (newest is None or entry.version > newest.version):
                newest = entry
        return newest

    def controller_of_deleted(self, gvk: GVK, key: NamespacedName) -> str:
        """Return the uid of the controller of the object that another client deleted; empty if none is known."""
        for informer in self._of_kind.get(gvk, ()):
            uid = informer.store.controller_of_deleted(key)
            if uid:
                return uid
        return ""

    def record_write(self, gvk: GVK, response: bytes) -> None:
        """Store the response to a write or a quorum read: one complete object. Do not call it for dry runs."""
        try:
            head = _response.decode(response)
            if head.kind != gvk.kind:
                return  # the response of a subresource: a Scale, for example
            key = NamespacedName(head.metadata.namespace, head.metadata.name)
            self._uncertain.pop((gvk, key), None)
            for informer in self._of_kind.get(gvk, ()):
                informer.record_write(response)
        except (msgspec.DecodeError, RecursionError, UnreadableObject) as error:
            _log.warning(
                "Failed to decode write response, relying on the watch",
                kind=str(gvk),
                error=str(error),
            )

    def record_deletion(self, gvk: GVK, key: NamespacedName, uid: str) -> None:
        """Record that the object of this uid was deleted; an empty uid: it does not exist and was not stored.

        If an object with another uid is stored under this name, it may be older or newer than the deleted one. Only a
        quorum read can determine that, so the object is marked as uncertain.
        """
        self._uncertain.pop((gvk, key), None)
        if not uid:
            return  # no informer stored the object, so no event about it can be outdated
        informers = self._of_kind.get(gvk, ())
        for informer in informers:
            informer.record_deletion(key, uid)
        if any(informer.reader.contains(key) for informer in informers):
            self.mark_uncertain(gvk, key)

    def mark_uncertain(self, gvk: GVK, key: NamespacedName) -> None:
        """Record that the outcome of a write to this object is unknown, so that its next read is a quorum read."""
        self._uncertain[gvk, key] = None
        self._uncertain.move_to_end((gvk, key))
        if len(self._uncertain) > MAX_UNCERTAIN:
            self._uncertain.popitem(last=False)

    def is_uncertain(self, gvk: GVK, key: NamespacedName) -> bool:
        """Return whether the state of the object is still unknown since :meth:`mark_uncertain`."""
        return (gvk, key) in self._uncertain

    def uncertain_keys(self, gvk: GVK, namespace: str) -> Collection[NamespacedName]:
        """Return the uncertain objects of this kind and namespace (empty: all namespaces)."""
        return [
            key for kind, key in self._uncertain if kind == gvk and namespace in ("", key.namespace)
        ]

    # Implementation.

    def _rebuild(self) -> None:
        """Let all informers list again, because one of them noticed that the database was restored.

        Otherwise reconciles would combine objects from before and after the restore for as long as the slowest one
        takes, and an informer whose position has passed the former one would never notice.
        """
        for informer in self.informers:
            informer.rebuild()

    def _report_left_out(self, gvk: GVK, found: LeftOut) -> None:
        if self._report is not None:
            self._report(gvk, found)

    def _restriction(self, gvk: GVK) -> LabelSelector:
        """Return the cache's own label selector for this kind."""
        return self._selectors.get(gvk, LabelSelector())

    def _restrict(self, gvk: GVK, labels: LabelSelector) -> LabelSelector:
        """Combine ``labels`` with the cache's own label selector for this kind."""
        restriction = self._selectors.get(gvk)
        if restriction is None or restriction == labels:
            return labels
        if not labels:
            return restriction
        return LabelSelector.of(f"{restriction},{labels}")


class _ResponseMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Response(msgspec.Struct):
    kind: str
    metadata: _ResponseMeta


_response = msgspec.json.Decoder(_Response)
