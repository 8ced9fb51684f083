"""Handlers: the decorators of kopf on the cache and the queue of :mod:`cfo.runtime`.

.. code-block:: python

    from cfo.runtime import handlers as kopf


    @kopf.on.create("kopfexamples")
    def create(spec, name, **_):
        return {"message": f"{name} was created with {spec}"}

``cfo handlers run FILE`` runs such a file as an operator; :func:`add_to` adds the handlers to a manager. An operator
that was written with kopf needs another import and no other change, within the limits that docs/from-kopf.md lists.

The functions, their parameters and the keywords of handlers have the names and the meaning that they have in kopf. The
annotations and the finalizer of objects are kopf's, so that an operator can be moved in both directions.
"""

import logging
from collections.abc import Mapping
from typing import Any, TypeAlias

from cfo.runtime.handlers import lifecycles, on
from cfo.runtime.handlers.activities import (
    ActivityError,
    ConnectionInfo,
    login_via_async_client,
    login_via_client,
    login_via_pykube,
    login_with_kubeconfig,
    login_with_service_account,
)
from cfo.runtime.handlers.bodies import (
    Annotations,
    Body,
    BodyEssence,
    Labels,
    Memo,
    Meta,
    ObjectReference,
    OwnerReference,
    Patch,
    PatchFn,
    RawBody,
    RawEvent,
    RawEventType,
    Spec,
    Status,
    build_object_reference,
    build_owner_reference,
)
from cfo.runtime.handlers.daemons import DaemonStopped, DaemonStoppingReason
from cfo.runtime.handlers.declarations import OperatorRegistry, Reason, get_default_registry, set_default_registry
from cfo.runtime.handlers.diffs import Diff, DiffItem, DiffOperation, FieldPath, FieldSpec
from cfo.runtime.handlers.environment import Index, ObjectLogger, Store
from cfo.runtime.handlers.errors import (
    AdmissionError,
    ErrorsMode,
    HandlerRetriesError,
    HandlerTimeoutError,
    LoginError,
    PermanentError,
    TemporaryError,
)
from cfo.runtime.handlers.execution import execute, register, subhandler
from cfo.runtime.handlers.filters import ABSENT, PRESENT, all_, any_, none_, not_
from cfo.runtime.handlers.hierarchies import (
    adjust_namespace,
    adopt,
    append_owner_reference,
    harmonize_naming,
    label,
    remove_owner_reference,
)
from cfo.runtime.handlers.lifecycles import get_default_lifecycle, set_default_lifecycle
from cfo.runtime.handlers.on import daemon, index, timer
from cfo.runtime.handlers.posting import event, exception, info, warn
from cfo.runtime.handlers.program import LogFormat, configure, operator, run
from cfo.runtime.handlers.progress_storage import (
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressRecord,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
)
from cfo.runtime.handlers.resource_selectors import EVERYTHING, Resource
from cfo.runtime.handlers.running import Handlers, add_to
from cfo.runtime.handlers.settings import OperatorSettings
from cfo.runtime.handlers.storage import (
    AnnotationsDiffBaseStorage,
    DiffBaseStorage,
    MultiDiffBaseStorage,
    StatusDiffBaseStorage,
)
from cfo.runtime.handlers.webhook_servers import (
    WebhookAutoServer,
    WebhookAutoTunnel,
    WebhookDockerDesktopServer,
    WebhookK3dServer,
    WebhookMinikubeServer,
    WebhookNgrokTunnel,
    WebhookServer,
    WebhookService,
)

__all__ = [
    "ABSENT",
    "EVERYTHING",
    "PRESENT",
    "ActivityError",
    "AdmissionError",
    "Annotations",
    "AnnotationsDiffBaseStorage",
    "AnnotationsProgressStorage",
    "AsyncDaemonStopperChecker",
    "Body",
    "BodyEssence",
    "ConnectionInfo",
    "DaemonStopped",
    "DaemonStoppingReason",
    "Diff",
    "DiffBaseStorage",
    "DiffItem",
    "DiffOperation",
    "ErrorsMode",
    "FieldPath",
    "FieldSpec",
    "HandlerId",
    "HandlerRetriesError",
    "HandlerTimeoutError",
    "Handlers",
    "Headers",
    "Index",
    "Labels",
    "LocalObjectLogger",
    "LogFormat",
    "Logger",
    "LoginError",
    "Memo",
    "Meta",
    "MultiDiffBaseStorage",
    "MultiProgressStorage",
    "ObjectLogger",
    "ObjectReference",
    "Operation",
    "OperatorRegistry",
    "OperatorSettings",
    "OwnerReference",
    "Patch",
    "PatchFn",
    "PermanentError",
    "ProgressRecord",
    "ProgressStorage",
    "RawBody",
    "RawEvent",
    "RawEventType",
    "Reason",
    "Resource",
    "SSLPeer",
    "SmartProgressStorage",
    "Spec",
    "Status",
    "StatusDiffBaseStorage",
    "StatusProgressStorage",
    "Store",
    "SyncDaemonStopperChecker",
    "TemporaryError",
    "UserInfo",
    "WebhookAutoServer",
    "WebhookAutoTunnel",
    "WebhookDockerDesktopServer",
    "WebhookK3dServer",
    "WebhookMinikubeServer",
    "WebhookNgrokTunnel",
    "WebhookServer",
    "WebhookService",
    "add_to",
    "adjust_namespace",
    "adopt",
    "all_",
    "any_",
    "append_owner_reference",
    "build_object_reference",
    "build_owner_reference",
    "configure",
    "daemon",
    "event",
    "exception",
    "execute",
    "get_default_lifecycle",
    "get_default_registry",
    "harmonize_naming",
    "index",
    "info",
    "label",
    "lifecycles",
    "login_via_async_client",
    "login_via_client",
    "login_via_pykube",
    "login_with_kubeconfig",
    "login_with_service_account",
    "none_",
    "not_",
    "on",
    "operator",
    "register",
    "remove_owner_reference",
    "run",
    "set_default_lifecycle",
    "set_default_registry",
    "subhandler",
    "timer",
    "warn",
]

Logger: TypeAlias = logging.Logger | logging.LoggerAdapter[logging.Logger]
HandlerId: TypeAlias = str
Headers: TypeAlias = Mapping[str, str]
SSLPeer: TypeAlias = Mapping[str, Any]
UserInfo: TypeAlias = Mapping[str, Any]
Operation: TypeAlias = str
LocalObjectLogger = ObjectLogger
SyncDaemonStopperChecker = AsyncDaemonStopperChecker = DaemonStopped
