"""A library for Kubernetes operators on asyncio, in controller-runtime's terms.

.. code-block:: python

    class Greeter:
        rules = [Rule("", "configmaps", CRUD)]

        def __init__(self, client: Client) -> None:
            self.client = client

        async def reconcile(self, request: Request) -> Result:
            account = await self.client.get(SERVICE_ACCOUNT, request)  # from memory
            if account is None or is_deleting(account):
                return Result()
            await self.client.apply(greeting_for(account), owner=account)  # sent only if it changes something
            return Result()


    manager = Manager(await load_config(), ManagerOptions(field_manager="greeter"))
    Builder(manager).for_(SERVICE_ACCOUNT).owns(CONFIG_MAP).complete(Greeter(manager.client))
    await manager.run(handle_signals=True)

What flows through it: a line of a watch goes into the :class:`Cache`, from there as an event to the handlers of a
:class:`Controller`, whose queue hands one :data:`Request` after the other to the :class:`Reconciler`; what that
writes with the :class:`Client` comes back as the next line.

Objects are plain dicts in their wire form. The library's parts are modules of this package; the names that an
operator needs are here as well, and are imported when they are first used: importing :mod:`cfo.runtime` costs
nothing. For logs call ``cfo.runtime.logs.configure``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfo.runtime.builder import Builder
    from cfo.runtime.cache.cache import Cache, SyncTimeoutError
    from cfo.runtime.cache.entry import Entry, Meta
    from cfo.runtime.cache.informer import Informer, Reader
    from cfo.runtime.client.client import Client, PatchType, Propagation
    from cfo.runtime.client.config import ClientConfig, ConfigError, load_config
    from cfo.runtime.client.errors import (
        AlreadyExists,
        APIError,
        BadRequest,
        Conflict,
        Expired,
        Forbidden,
        InternalError,
        Invalid,
        MethodNotSupported,
        NotAcceptable,
        NotFound,
        RequestEntityTooLarge,
        RequestTimeout,
        ServerTimeout,
        ServiceUnavailable,
        TooManyRequests,
        TransportError,
        Unauthorized,
        UnknownKind,
        UnsupportedMediaType,
    )
    from cfo.runtime.client.transport import Transport
    from cfo.runtime.controller import Controller, ControllerOptions, ReconcileTimeout
    from cfo.runtime.discovery import DiscoveryIncomplete, Resource, RESTMapper
    from cfo.runtime.events import EventRecorder, EventType
    from cfo.runtime.handler import (
        EnqueueRequestForObject,
        EnqueueRequestForOwner,
        EnqueueRequestsFromMapFunc,
        EventHandler,
    )
    from cfo.runtime.leaderelection import LeaderElectionOptions, LeadershipLost, leader_election_rules
    from cfo.runtime.manager import GracePeriodExceeded, Manager, ManagerOptions, Phase, Runnable, RunnableFailed
    from cfo.runtime.objects import (
        GVK,
        GVR,
        NamespacedName,
        Object,
        annotations_of,
        controller_of,
        find_condition,
        gvk_of,
        has_finalizer,
        is_controlled_by,
        is_deleting,
        key_of,
        labels_of,
        name_of,
        namespace_of,
        owner_reference,
        owner_references_of,
        resource_version_of,
        set_condition,
        uid_of,
    )
    from cfo.runtime.predicate import (
        AnnotationChanged,
        GenerationChanged,
        LabelChanged,
        Predicate,
        ResourceVersionChanged,
        and_,
        not_,
        or_,
    )
    from cfo.runtime.reconcile import CRUD, READ, WRITE, Reconciler, Request, Result, Rule, TerminalError
    from cfo.runtime.source import Channel, Kind, Source

__all__ = [
    "CRUD",
    "GVK",
    "GVR",
    "READ",
    "WRITE",
    "APIError",
    "AlreadyExists",
    "AnnotationChanged",
    "BadRequest",
    "Builder",
    "Cache",
    "Channel",
    "Client",
    "ClientConfig",
    "ConfigError",
    "Conflict",
    "Controller",
    "ControllerOptions",
    "DiscoveryIncomplete",
    "EnqueueRequestForObject",
    "EnqueueRequestForOwner",
    "EnqueueRequestsFromMapFunc",
    "Entry",
    "EventHandler",
    "EventRecorder",
    "EventType",
    "Expired",
    "Forbidden",
    "GenerationChanged",
    "GracePeriodExceeded",
    "Informer",
    "InternalError",
    "Invalid",
    "Kind",
    "LabelChanged",
    "LeaderElectionOptions",
    "LeadershipLost",
    "Manager",
    "ManagerOptions",
    "Meta",
    "MethodNotSupported",
    "NamespacedName",
    "NotAcceptable",
    "NotFound",
    "Object",
    "PatchType",
    "Phase",
    "Predicate",
    "Propagation",
    "RESTMapper",
    "Reader",
    "ReconcileTimeout",
    "Reconciler",
    "Request",
    "RequestEntityTooLarge",
    "RequestTimeout",
    "Resource",
    "ResourceVersionChanged",
    "Result",
    "Rule",
    "Runnable",
    "RunnableFailed",
    "ServerTimeout",
    "ServiceUnavailable",
    "Source",
    "SyncTimeoutError",
    "TerminalError",
    "TooManyRequests",
    "Transport",
    "TransportError",
    "Unauthorized",
    "UnknownKind",
    "UnsupportedMediaType",
    "and_",
    "annotations_of",
    "controller_of",
    "find_condition",
    "gvk_of",
    "has_finalizer",
    "is_controlled_by",
    "is_deleting",
    "key_of",
    "labels_of",
    "leader_election_rules",
    "load_config",
    "name_of",
    "namespace_of",
    "not_",
    "or_",
    "owner_reference",
    "owner_references_of",
    "resource_version_of",
    "set_condition",
    "uid_of",
]

# Where the names are looked for, in this order: what imports little comes first.
_MODULES = (
    *("objects", "reconcile", "client.errors", "client.config", "client.transport", "client.client", "discovery"),
    *("predicate", "handler", "source", "events", "cache.entry", "cache.informer", "cache.cache"),
    *("controller", "builder", "leaderelection", "manager"),
)


def __getattr__(name: str) -> Any:
    """Imports a public name from its module when it is first asked for (PEP 562)."""
    if name in __all__:
        for home in _MODULES:
            module = import_module(f"{__name__}.{home}")
            if name in module.__all__:
                globals()[name] = value = getattr(module, name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
