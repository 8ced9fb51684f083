"""Says in one sentence what a controller watches, and makes it.

``Builder(manager, "raycluster-ingress").for_(RAY_CLUSTER).owns(INGRESS).complete(reconciler)``
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from cfo.runtime.cache.informer import Informer
from cfo.runtime.controller import Controller, ControllerOptions
from cfo.runtime.handler import EnqueueRequestForObject, EnqueueRequestForOwner, EventHandler
from cfo.runtime.objects import GVK
from cfo.runtime.predicate import Predicate
from cfo.runtime.reconcile import Reconciler
from cfo.runtime.source import Kind, Source, Synced
from cfo.runtime.workqueue import RateLimiter

if TYPE_CHECKING:
    from cfo.runtime.manager import Manager

__all__ = ["Builder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    gvk: GVK
    handler: EventHandler | None
    predicates: tuple[Predicate, ...]
    label_selector: str = ""
    field_selector: str = ""
    namespace: str = ""
    metadata_only: bool = False
    only_controller: bool = True
    optional: bool = False


class Builder:
    """Builds one controller for ``manager``.

    ``name`` is its name in logs and metrics: the primary kind in lower case by default. Every method but
    :meth:`complete` returns the builder. Informers are shared with all others that watch the same kind with
    the same selectors, namespace and depth (whole objects, or ``metadata_only``).
    """

    def __init__(self, manager: Manager, name: str = "") -> None:
        self._manager = manager
        self._name = name
        self._primary: GVK | None = None
        self._watches: list[_Watch] = []
        self._sources: list[Source] = []
        self._predicates: tuple[Predicate, ...] = ()
        self._options = ControllerOptions()

    def for_(
        self,
        gvk: GVK,
        *predicates: Predicate,
        label_selector: str = "",
        field_selector: str = "",
        namespace: str = "",
        metadata_only: bool = False,
    ) -> Self:
        """The kind that is reconciled: an event of an object is a request for it. At most one."""
        if self._primary is not None:
            raise ValueError(f"for_ was called twice: with {self._primary} and {gvk}")
        self._primary = gvk
        self._watches.append(
            _Watch(
                gvk=gvk,
                handler=EnqueueRequestForObject(),
                predicates=predicates,
                label_selector=label_selector,
                field_selector=field_selector,
                namespace=namespace,
                metadata_only=metadata_only,
            )
        )
        return self

    def owns(
        self,
        gvk: GVK,
        *predicates: Predicate,
        label_selector: str = "",
        field_selector: str = "",
        namespace: str = "",
        metadata_only: bool = False,
        only_controller: bool = True,
    ) -> Self:
        """A kind whose objects the reconciled ones own: an event is a request for the managing owner.

        With ``only_controller`` false, for every owner of the primary kind.
        """
        self._watches.append(
            _Watch(
                gvk=gvk,
                handler=None,
                predicates=predicates,
                label_selector=label_selector,
                field_selector=field_selector,
                namespace=namespace,
                metadata_only=metadata_only,
                only_controller=only_controller,
            )
        )
        return self

    def watches(
        self,
        gvk: GVK,
        handler: EventHandler,
        *predicates: Predicate,
        label_selector: str = "",
        field_selector: str = "",
        namespace: str = "",
        metadata_only: bool = False,
        optional: bool = False,
    ) -> Self:
        """Any kind: ``handler`` says which requests an event calls for.

        A controller works when all its kinds are known. ``optional`` is for a kind that may never be served, as
        that of another project, or that roles may keep from us: the controller does not wait for it, and hears of its
        objects when it comes.
        """
        self._watches.append(
            _Watch(
                gvk=gvk,
                handler=handler,
                predicates=predicates,
                label_selector=label_selector,
                field_selector=field_selector,
                namespace=namespace,
                metadata_only=metadata_only,
                optional=optional,
            )
        )
        return self

    def reads(self, *informers: Informer) -> Self:
        """Informers that the reconciler reads from but need not hear of: it starts when they have synced too.

        (Those of kinds that are watched are waited for anyway.)
        """
        self._sources += map(Synced, informers)
        return self

    def watches_source(self, source: Source) -> Self:
        """Any other source of requests, as a :class:`~cfo.runtime.source.Channel`."""
        self._sources.append(source)
        return self

    def with_predicates(self, *predicates: Predicate) -> Self:
        """Predicates for every kind that the controller watches, besides those of each."""
        self._predicates += predicates
        return self

    def with_options(
        self,
        *,
        max_concurrent_reconciles: int | None = None,
        reconcile_timeout: float | None = None,
        rate_limiter: RateLimiter | None = None,
        needs_leader: bool | None = None,
    ) -> Self:
        """Sets the given ones of :class:`~cfo.runtime.controller.ControllerOptions`; raises :class:`ValueError`."""
        given: dict[str, Any] = {
            "max_concurrent_reconciles": max_concurrent_reconciles,
            "reconcile_timeout": reconcile_timeout,
            "rate_limiter": rate_limiter,
            "needs_leader": needs_leader,
        }
        self._options = replace(self._options, **{key: value for key, value in given.items() if value is not None})
        return self

    def complete(self, reconciler: Reconciler) -> Controller:
        """Makes the controller and adds it to the manager, which starts it (at once if it runs already).

        Raises :class:`ValueError` when nothing is watched, when :meth:`owns` has no primary kind, or when the
        manager has a controller of this name.
        """
        if not self._watches and all(isinstance(source, Synced) for source in self._sources):
            raise ValueError("a controller that watches nothing never reconciles: call for_, watches or watches_source")
        name = self._name or (self._primary.kind.lower() if self._primary else "")
        if not name:
            raise ValueError("a controller without a primary kind needs a name")
        manager = self._manager
        controller = Controller(
            name,
            reconciler,
            kind=self._primary,
            options=self._options,
            metrics=manager.metrics,
            clock=manager.clock,
        )
        for watch in self._watches:
            controller.watch(self._source(watch))
            if watch.optional:
                manager.when_available(watch.gvk, partial(_wake, watch.gvk))
        for source in self._sources:
            controller.watch(source)
        manager.add_controller(controller)
        return controller

    def _source(self, watch: _Watch) -> Kind:
        handler = watch.handler
        if handler is None:
            if self._primary is None:
                raise ValueError(f"owns({watch.gvk}) needs to know the owners' kind: call for_ too")
            handler = EnqueueRequestForOwner(self._primary, only_controller=watch.only_controller)
        informer = self._manager.cache.informer(
            watch.gvk,
            label_selector=watch.label_selector,
            field_selector=watch.field_selector,
            namespace=watch.namespace,
            metadata_only=watch.metadata_only,
        )
        return Kind(
            informer,
            handler,
            *self._predicates,
            *watch.predicates,
            mapper=self._manager.mapper,
            optional=watch.optional,
            clock=self._manager.clock,
        )


def _wake(gvk: GVK, manager: Manager) -> None:
    manager.cache.wake(gvk)
