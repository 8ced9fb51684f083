"""Builds a controller from the kinds that it reconciles, owns and watches.

``Builder(manager, "notebook").for_(NOTEBOOK).owns(INGRESS).complete(reconciler)``
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import msgspec

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.selectors import BudgetFunction, require_budget_function
from cfo.runtime.controller.controller import Controller, ControllerOptions
from cfo.runtime.controller.handler import (
    EnqueueRequestForObject,
    EnqueueRequestForOwner,
    EventHandler,
)
from cfo.runtime.controller.predicate import Predicate, require_predicates
from cfo.runtime.controller.reconcile import Reconciler, Request
from cfo.runtime.controller.source import InformerSync, Kind, Source
from cfo.runtime.manager.leadership import ElectedControllers
from cfo.runtime.objects.errors import InvalidResource
from cfo.runtime.objects.unstructured import GVK, ObjectKind, require_kind
from cfo.runtime.process.arguments import require_plain_function, require_type, shown

if TYPE_CHECKING:
    from cfo.runtime.manager.manager import Manager


class SelectionKeywords(TypedDict, total=False):
    """The keywords of :class:`Builder` that limit the cached objects of a kind and the cached part of each object.

    ``label_selector`` and ``field_selector`` have kubectl's syntax (empty: all objects); ``namespace`` limits the
    informer to one namespace (empty: all namespaces of the manager), ``other_namespaces`` to those that are not the
    manager's. With ``metadata_only`` only metadata is requested and cached; with ``fields``, dotted paths as
    ``spec.parallelism``, only these fields and the metadata are cached.
    Objects larger than ``max_bytes`` are not cached; the default is more than API servers store. ``budget_of`` returns
    the namespace in whose budget of bytes a cluster-scoped object counts.
    """

    label_selector: str
    field_selector: str
    namespace: str
    other_namespaces: bool
    metadata_only: bool
    fields: Collection[str]
    max_bytes: int
    budget_of: BudgetFunction


class _Watch(msgspec.Struct, frozen=True, kw_only=True):
    gvk: GVK
    handler: EventHandler | None
    predicates: tuple[Predicate, ...]
    selection: SelectionKeywords
    optional: bool = False

    def __post_init__(self) -> None:
        require_predicates(f"predicate of {self.gvk}", self.predicates)
        allowed = SelectionKeywords.__annotations__
        for keyword in self.selection:
            if keyword not in allowed:
                raise TypeError(
                    f"watch of {self.gvk}: keyword {keyword}: must be one of {', '.join(allowed)}"
                )
        budget_of = self.selection.get("budget_of")
        if budget_of is not None:
            require_budget_function(budget_of)


class Builder:
    """Builds one controller for ``manager``.

    ``name`` identifies the controller in logs and metrics; the default is the primary kind in lower case. Every method
    except :meth:`complete` returns the builder. :meth:`for_`, :meth:`owns` and :meth:`watches` take the keywords of
    :class:`SelectionKeywords`. Controllers of a manager share one informer for each combination of kind and selection.
    A manager with a builder whose :meth:`complete` was not called does not start.
    """

    def __init__(self, manager: Manager, name: str = "") -> None:
        # Not isinstance: the module of the class imports this one.
        if not hasattr(manager, "incomplete_builders"):
            raise TypeError(
                f"Builder: {manager!r:.200}: must be a Manager, as in Builder(manager, 'website')"
            )
        require_type("Builder: name", name, str, "a string, such as website")
        self._manager = manager
        self._name = name
        self._primary: GVK | None = None
        self._is_typed = False
        self._watches: list[_Watch] = []
        self._sources: list[Source] = []
        self._options = ControllerOptions()
        self._group: ElectedControllers | None = None
        manager.incomplete_builders.append(self)

    def __str__(self) -> str:
        """Return what is built, for errors."""
        name = f" {self._name!r}" if self._name else ""
        kind = f" for {self._primary}" if self._primary is not None else ""
        return f"Builder{name}{kind}"

    def for_(
        self, kind: ObjectKind[Any], *predicates: Predicate, **selection: Unpack[SelectionKeywords]
    ) -> Self:
        """Reconcile objects of ``kind``: an event of an object enqueues a request for it.

        If the manager is limited to namespaces, requests in other namespaces are dropped, also those of other sources.

        Raises :class:`ValueError` on a second call, and :class:`TypeError` for a predicate that is a class. All methods
        raise :class:`TypeError` for what is no kind.
        """
        gvk = require_kind("for_", kind)
        if self._primary is not None:
            raise ValueError(f"for_ was called twice: with {self._primary} and {gvk}")
        self._primary = gvk
        self._is_typed = isinstance(kind, type)
        watch = _Watch(
            gvk=gvk,
            handler=EnqueueRequestForObject(),
            predicates=predicates,
            selection=selection,
        )
        self._watches.append(watch)
        return self

    def owns(
        self, kind: ObjectKind[Any], *predicates: Predicate, **selection: Unpack[SelectionKeywords]
    ) -> Self:
        """Watch objects of ``kind`` that reconciled objects control; an event enqueues a request for the controller."""
        watch = _Watch(
            gvk=require_kind("owns", kind),
            handler=None,  # created by complete(), because for_ may be called later
            predicates=predicates,
            selection=selection,
        )
        self._watches.append(watch)
        return self

    def watches(
        self,
        kind: ObjectKind[Any],
        handler: EventHandler,
        *predicates: Predicate,
        optional: bool = False,
        **selection: Unpack[SelectionKeywords],
    ) -> Self:
        """Watch objects of ``kind``: ``handler`` maps an event to requests.

        A controller starts when all its kinds have synced. It does not wait for a kind that is ``optional``, and
        receives the events of that kind once the kind becomes available. Set ``optional`` for kinds that may never be
        served (such as another project's CRD) or that RBAC may forbid. Raises :class:`TypeError` for a handler that is
        a function or a class.
        """
        gvk = require_kind("watches", kind)
        if isinstance(handler, type) or not callable(getattr(handler, "requests", None)):
            raise TypeError(
                f"watches({gvk}): {shown(handler)}: must be an EventHandler, such as "
                "EnqueueRequestsFromMapFunc(function)"
            )
        require_plain_function(
            f"watches({gvk}): {type(handler).__name__}.requests",
            handler.requests,
            "a method that returns requests",
        )
        watch = _Watch(
            gvk=gvk,
            handler=handler,
            predicates=predicates,
            selection=selection,
            optional=optional,
        )
        self._watches.append(watch)
        return self

    def reads(self, *informers: Informer) -> Self:
        """Make the controller wait until ``informers`` have synced, without receiving their events.

        Use it for informers that the reconciler only reads from; informers of watched kinds are always waited for.
        """
        for informer in informers:
            if not isinstance(informer, Informer):
                raise TypeError(
                    f"reads: {informer!r:.200}: must be an Informer, such as manager.cache.informer(KIND)"
                )
            self._sources.append(InformerSync(informer))
        return self

    def watches_source(self, source: Source) -> Self:
        """Add any other source of requests, such as a :class:`~cfo.runtime.controller.source.Channel`."""
        self._sources.append(source)
        return self

    def elected_by(self, group: ElectedControllers | None) -> Self:
        """Run the controller only while the Lease of ``group`` is held (:meth:`Manager.elect`); ``None``: always."""
        self._group = group
        return self

    def with_options(self, options: ControllerOptions) -> Self:
        """Set the options of the controller."""
        require_type("with_options", options, ControllerOptions, "ControllerOptions(...)")
        self._options = options
        return self

    def complete(self, reconciler: Reconciler) -> Controller:
        """Create the controller and add it to the manager, which starts it (immediately if the manager is running).

        Raises :class:`ValueError` when nothing is watched, when :meth:`owns` is used without :meth:`for_`, or when the
        manager already has a controller of this name, and :class:`TypeError` if ``reconciler.reconcile`` is not a
        coroutine function.
        """
        if not self._watches and all(isinstance(source, InformerSync) for source in self._sources):
            raise ValueError("no watches: call for_, watches or watches_source")
        name = self._name
        if not name and self._primary is not None:
            name = self._primary.kind.lower()
        if not name:
            raise ValueError("a controller without a primary kind needs a name")
        manager = self._manager
        # Without a primary kind, the program decides what a request names.
        namespaces = manager.options.namespaces if self._primary is not None else None
        controller = Controller(
            name,
            reconciler,
            kind=self._primary,
            options=self._options,
            namespaces=namespaces,
            metrics=manager.metrics,
            clock=manager.clock,
            large_objects=manager.large_objects,
            unavailable=manager.cache.unavailable,
            report_invalid=self._report_of_invalid_objects(name),
        )
        for watch in self._watches:
            kind_source = self._source(watch)
            controller.watch(kind_source)
            if isinstance(kind_source.handler, EnqueueRequestForOwner):
                manager.cache.expect_children(kind_source.handler.owner, watch.gvk)
            if watch.optional:
                manager.when_available(watch.gvk, partial(_wake_informers, watch.gvk))
        for source in self._sources:
            controller.watch(source)
        manager.add_controller(controller, self._group)
        manager.incomplete_builders.remove(self)
        return controller

    def _report_of_invalid_objects(
        self, name: str
    ) -> Callable[[Request, InvalidResource], None] | None:
        """Return a function that records an Event about an object whose class, the primary kind, it does not fit."""
        if not self._is_typed:
            return None
        informer = self._informer(self._watches[0])
        events = self._manager.events(name)

        def report(request: Request, error: InvalidResource) -> None:
            entry = informer.reader.entry(request)
            if entry is None:
                return
            remedy = "change it so that it fits"
            if entry.meta.is_deleting:
                remedy = (
                    "its deletion waits until it fits, or until its finalizers are removed by hand"
                )
            events.event(entry.metadata_object(), "Warning", "InvalidObject", f"{error}; {remedy}")

        return report

    def _handler(self, watch: _Watch) -> EventHandler:
        if watch.handler is not None:
            return watch.handler
        if self._primary is None:
            raise ValueError(f"owns({watch.gvk}): the owner kind is unknown: call for_, too")
        return EnqueueRequestForOwner(self._primary)

    def _source(self, watch: _Watch) -> Kind:
        return Kind(
            self._informer(watch),
            self._handler(watch),
            *watch.predicates,
            mapper=self._manager.mapper,
            optional=watch.optional,
            clock=self._manager.clock,
        )

    def _informer(self, watch: _Watch) -> Informer:
        return self._manager.cache.informer(watch.gvk, **watch.selection)


def _wake_informers(gvk: GVK, manager: Manager) -> None:
    manager.cache.wake(gvk)
