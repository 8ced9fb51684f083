"""The cache: the informers of a process, each shared by all who ask for the same thing.

What is *the same* is the kind, the selectors, the namespaces and whether only metadata is kept. Two
informers of one kind with different selectors are two watches: choose selectors by what a process needs
as a whole.

To the client the cache is a :class:`~cfo.runtime.client.cache.ClientCache`: reads that an informer can answer
make no request, and the answers to writes are readable at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from random import random as default_random
from typing import Any, Final

import anyio
import anyio.abc
import msgspec
import structlog

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.selectors import FieldSelector, LabelSelector
from cfo.runtime.client.cache import ClientCache, Stored
from cfo.runtime.client.transport import Transport
from cfo.runtime.clock import Clock, SystemClock
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.kinds import SECRET
from cfo.runtime.objects import GVK, NamespacedName, Object

__all__ = ["Cache", "SyncTimeoutError"]


UNCERTAIN_KEPT: Final = 10_000
"""How many objects are remembered whose next read must go to the API server; the oldest are forgotten first."""

_log = structlog.get_logger(__name__)

_Identity = tuple[GVK, str, str, tuple[str, ...], bool]


class SyncTimeoutError(TimeoutError):
    """Some informers did not get their first list in time; the message says which, and why each did not."""


class Cache(ClientCache):
    """Makes, shares and runs informers.

    ``field_managers`` are the field managers that are ours: their managedFields entries are kept for
    :meth:`stored`. ``namespaces`` restricts all informers of namespaced kinds to these (``None``: every
    namespace); each is then listed and watched by itself, so that rights in these namespaces suffice.
    ``selectors`` are label selectors by kind: of these kinds nothing else exists for the cache, which counts as all
    there is. ``never_whole`` are kinds of which the cache refuses to keep every object of the cluster: they need
    a selector, a namespace, or metadata alone. ``random`` returns numbers in [0, 1).
    """

    def __init__(
        self,
        transport: Transport,
        mapper: RESTMapper,
        *,
        field_managers: Collection[str] = (),
        namespaces: Collection[str] | None = None,
        selectors: Mapping[GVK, str] | None = None,
        never_whole: Collection[GVK] = (SECRET,),
        clock: Clock | None = None,
        random: Callable[[], float] = default_random,
        page_size: int = 500,
        idle_seconds: float = 75.0,
    ) -> None:
        self._transport = transport
        self._mapper = mapper
        self._field_managers = frozenset(field_managers)
        self._namespaces = tuple(sorted(namespaces)) if namespaces else ("",)
        self._selectors = {gvk: LabelSelector.of(text) for gvk, text in (selectors or {}).items() if text}
        self._never_whole = frozenset(never_whole)
        self._clock = clock or SystemClock()
        self._random = random
        self._page_size = page_size
        self._idle_seconds = idle_seconds
        self._informers: dict[_Identity, Informer] = {}
        self._of_kind: dict[GVK, list[Informer]] = {}
        self._scopes: dict[Informer, anyio.CancelScope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._uncertain: OrderedDict[tuple[GVK, NamespacedName], None] = OrderedDict()

    # Informers.

    def informer(
        self,
        gvk: GVK,
        *,
        label_selector: str | Mapping[str, Any] | LabelSelector = "",
        field_selector: str | FieldSelector = "",
        namespace: str = "",
        metadata_only: bool = False,
    ) -> Informer:
        """The informer of this kind, selection, namespace (empty: all of the cache's) and depth.

        It is made when nobody asked for it before, and started at once when the cache runs. Raises
        :class:`ValueError` for a selector that cannot be read, a namespace outside the cache's, and the
        whole of a kind that must not be kept whole (Secrets).
        """
        labels, fields = self._within(gvk, LabelSelector.of(label_selector)), FieldSelector.of(field_selector)
        if namespace and self._namespaces != ("",) and namespace not in self._namespaces:
            raise ValueError(f"namespace {namespace!r}: the cache is restricted to {', '.join(self._namespaces)}")
        namespaces = (namespace,) if namespace else self._namespaces
        identity = (gvk, str(labels), str(fields), namespaces, metadata_only)
        known = self._informers.get(identity)
        if known is not None:
            return known
        if gvk in self._never_whole and namespaces == ("",) and not (labels or fields or metadata_only):
            raise ValueError(
                f"{gvk}: not to be cached for the whole cluster; give a label_selector, a namespace or metadata_only"
            )
        informer = Informer(
            self._transport,
            self._mapper,
            gvk,
            label_selector=labels,
            field_selector=fields,
            namespaces=namespaces,
            metadata_only=metadata_only,
            field_managers=self._field_managers,
            clock=self._clock,
            random=self._random,
            page_size=self._page_size,
            idle_seconds=self._idle_seconds,
        )
        self._informers[identity] = informer
        self._of_kind.setdefault(gvk, []).append(informer)
        if self._tasks is not None:
            self._tasks.start_soon(self._run_informer, informer)
        return informer

    @property
    def informers(self) -> Collection[Informer]:
        """All informers."""
        return list(self._informers.values())

    def remove(self, informer: Informer) -> None:
        """Stops an informer and forgets what it knows; its handlers are told nothing more."""
        for identity, known in list(self._informers.items()):
            if known is informer:
                del self._informers[identity]
                self._of_kind[informer.gvk].remove(informer)
        scope = self._scopes.get(informer)
        if scope is not None:
            scope.cancel()

    def wake(self, gvk: GVK) -> None:
        """Says that the kind may be served now: informers that wait for it ask discovery at once."""
        for informer in self._of_kind.get(gvk, ()):
            informer.wake()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Runs all informers, those of now and those that are asked for later, until it is cancelled.

        To be started in the manager's task group; ``task_status`` is told once informers are being
        started (not: synced).
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
            return
        with anyio.CancelScope() as scope:
            self._scopes[informer] = scope
            try:
                await informer.run()
            finally:
                del self._scopes[informer]

    async def wait_for_sync(self, timeout: float | None = None) -> None:
        """Returns when every informer has its first list.

        Raises :class:`SyncTimeoutError` after ``timeout`` seconds (``None``: waits for ever), with what each
        informer is waiting for.
        """
        try:
            with anyio.fail_after(timeout):
                for informer in self.informers:
                    await informer.wait_for_sync()
        except TimeoutError:
            waiting = [
                f"{informer.gvk}: {informer.problem or 'the list is not complete'}"
                for informer in self.informers
                if not informer.has_synced
            ]
            raise SyncTimeoutError(f"not synced after {timeout:g} s: {'; '.join(waiting)}") from None

    # What the client asks (cfo.runtime.client.cache.ClientCache).

    def covers(self, gvk: GVK, namespace: str) -> bool:
        """Whether a synced informer of whole objects, without selectors, holds all of the namespace.

        An empty namespace means all objects: all of those namespaces that the cache is restricted to.
        """
        return self._covering(gvk, namespace) is not None

    def get(self, gvk: GVK, key: NamespacedName) -> Object | None:
        """The object, or ``None``; raises :class:`LookupError` where :meth:`covers` is false."""
        return self._covering_or_raise(gvk, key.namespace).reader.get(key)

    def list(self, gvk: GVK, namespace: str, label_selector: str) -> list[Object]:
        """The objects that match; raises :class:`LookupError` where :meth:`covers` is false."""
        return self._covering_or_raise(gvk, namespace).reader.list(namespace, label_selector)

    def stored(self, gvk: GVK, key: NamespacedName) -> Stored | None:
        """The newest state of the object in any informer of whole objects that holds it."""
        entries = [
            entry
            for informer in self._of_kind.get(gvk, ())
            if not informer.metadata_only and (entry := informer.reader.entry(key)) is not None
        ]
        if not entries:
            return None
        newest = max(entries, key=lambda entry: entry.version)
        meta = newest.meta
        return Stored(newest.raw, newest.managers, meta.uid, meta.resource_version)

    def wrote(self, gvk: GVK, answer: bytes) -> None:
        """Takes in the answer to a write or a quorum read: one whole object. Dry runs must not come here."""
        try:
            head = _answer.decode(answer)
            if head.kind != gvk.kind:
                return
            self._uncertain.pop((gvk, NamespacedName(head.metadata.namespace, head.metadata.name)), None)
            for informer in self._of_kind.get(gvk, ()):
                informer.wrote(answer)
        except msgspec.DecodeError as error:
            _log.warning("the answer to a write cannot be read; the watch will tell", kind=str(gvk), cause=str(error))

    def deleted(self, gvk: GVK, key: NamespacedName, uid: str) -> None:
        """Takes in that the object of this uid is gone; an empty uid: there is none, and none was stored.

        Where another object is stored under the name, it may be the former one or the next one: only a quorum
        read can tell.
        """
        self._uncertain.pop((gvk, key), None)
        if not uid:
            return
        informers = self._of_kind.get(gvk, ())
        for informer in informers:
            informer.deleted(key, uid)
        if any(informer.reader.contains(key) for informer in informers):
            self.uncertain(gvk, key)

    def uncertain(self, gvk: GVK, key: NamespacedName) -> None:
        """Notes that a write of this object may or may not have happened: its next read is a quorum read."""
        self._uncertain[gvk, key] = None
        self._uncertain.move_to_end((gvk, key))
        if len(self._uncertain) > UNCERTAIN_KEPT:
            self._uncertain.popitem(last=False)

    def is_uncertain(self, gvk: GVK, key: NamespacedName) -> bool:
        """Whether nothing certain was learned about the object since :meth:`uncertain`."""
        return (gvk, key) in self._uncertain

    def uncertain_keys(self, gvk: GVK, namespace: str) -> Collection[NamespacedName]:
        """The objects of this kind and namespace (empty: all of them) that :meth:`is_uncertain` is true of."""
        return [key for kind, key in self._uncertain if kind == gvk and namespace in ("", key.namespace)]

    # How it works.

    def _within(self, gvk: GVK, labels: LabelSelector) -> LabelSelector:
        """``labels``, of those objects of the kind that exist for this cache."""
        only = self._selectors.get(gvk)
        if only is None or str(only) == str(labels):
            return labels
        return LabelSelector.of(f"{only},{labels}") if labels else only

    def _covering(self, gvk: GVK, namespace: str) -> Informer | None:
        for informer in self._of_kind.get(gvk, ()):
            if informer.metadata_only or informer.field_selector:
                continue
            if str(informer.label_selector) != str(self._selectors.get(gvk, "")):
                continue
            if informer.has_synced and (
                informer.namespaces == self._namespaces if not namespace else informer.holds(namespace)
            ):
                return informer
        return None

    def _covering_or_raise(self, gvk: GVK, namespace: str) -> Informer:
        informer = self._covering(gvk, namespace)
        if informer is None:
            raise LookupError(f"{gvk} in {namespace or 'all namespaces'}: no informer covers it")
        return informer


class _AnswerMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Answer(msgspec.Struct):
    kind: str
    metadata: _AnswerMeta


_answer = msgspec.json.Decoder(_Answer)
