"""The types of handlers, so that type checkers find wrong types of their keywords, and a missing ``**_``.

A function needs only the keywords that it uses, and ``**_`` for the others. Indexes are keywords, too. mypy, but not
pyright, rejects a keyword that is not listed here and has no default: such an index is also in ``indices``.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Protocol

from cfo_handlers.bodies import (
    Annotations,
    Body,
    Headers,
    Labels,
    Logger,
    Meta,
    Patch,
    RawEvent,
    Spec,
    SSLPeer,
    Status,
    UserInfo,
)
from cfo_handlers.declarations import Activity
from cfo_handlers.diffs import Diff
from cfo_handlers.environment import Index
from cfo_handlers.resource_selectors import Resource
from cfo_handlers.settings import OperatorSettings
from cfo_handlers.stoppers import DaemonStopped


class ActivityFn(Protocol):
    """A handler of the whole operator."""

    def __call__(
        self,
        *,
        settings: OperatorSettings,
        retry: int,
        started: datetime.datetime,
        runtime: datetime.timedelta,
        logger: Logger,
        memo: Any,
        indices: Mapping[str, Index[Any, Any]],
        activity: Activity,
        client: Any,  # in a manager of your own, which is connected: not in login handlers
        param: Any = ...,
        **kwargs: Any,
    ) -> object:
        """Return a result: the credentials of a login, or the value of a probe; async functions can, too."""
        ...


class ResourceFn(Protocol):
    """A handler for objects. Which keywords it gets depends on its decorator; each has the same type in all."""

    def __call__(
        self,
        *,
        # all handlers
        annotations: Annotations,
        labels: Labels,
        body: Body,
        meta: Meta,
        spec: Spec,
        status: Status,
        resource: Resource,
        uid: str,
        name: str,
        namespace: Any,  # a string, and None for objects without a namespace
        patch: Patch,
        logger: Logger,
        memo: Any,
        client: Any,  # a Client in coroutines, a SyncClient in threads
        indices: Mapping[str, Index[Any, Any]],
        param: Any = ...,
        # handlers that are called again, such as after an error
        retry: int,
        started: datetime.datetime,
        runtime: datetime.timedelta,
        # handlers of changes
        reason: str,
        diff: Diff,
        old: Any,
        new: Any,
        # handlers of events
        type: str,  # noqa: A002 - the names are those of kopf
        event: RawEvent,
        # daemons
        stopped: DaemonStopped,
        # admission handlers
        dryrun: bool,
        warnings: list[str],
        operation: str,
        subresource: str | None,
        userinfo: UserInfo,
        sslpeer: SSLPeer,
        headers: Headers,
        **kwargs: Any,
    ) -> object:
        """Return a result; async functions can, too."""
        ...
