"""The state that handlers share: the store, the registry, admission, field management and tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from envtest.apimachinery.clock import Clock
from envtest.apimachinery.objects import Object
from envtest.apply.trackers import Trackers
from envtest.auth.rbac import Authorizer
from envtest.auth.reviews import Reviews
from envtest.auth.tokens import ServiceAccountTokens
from envtest.configuration.feature_gates import SHARDED_LIST_AND_WATCH
from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion
from envtest.registry.registry import Registry
from envtest.registry.resource import RequestContext
from envtest.registry.shard_selectors import ShardSelector, parse_shard_selector
from envtest.storage import Store, Watcher

if TYPE_CHECKING:
    from envtest.admission.webhook_client import WebhookClient
    from envtest.endpoints.request import Request, Response
    from envtest.http_server.responses import SentResponse
    from envtest.simulation.protocol import Simulation

__all__ = ["Admission", "Core", "PodService"]


class Admission(Protocol):
    """The admission chain. The methods raise StatusError to reject; warnings are added to the context."""

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None) -> Object:
        """Return the object to continue with. For DELETE ``obj`` is empty and ``old`` is the object to delete."""

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Accept or reject the final object."""

    async def connect(self, ctx: RequestContext, options: Object) -> None:
        """Accept or reject a connection with these options."""


class NoAdmission:
    """Accepts everything and changes nothing."""

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None) -> Object:
        """Return ``obj``."""
        return obj

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Accept the object."""

    async def connect(self, ctx: RequestContext, options: Object) -> None:
        """Accept the connection."""


class PodService(Protocol):
    """Answers requests that a kubelet would answer. The methods raise StatusError."""

    async def connect(
        self, core: Core, request: Request, ctx: RequestContext, pod: Object
    ) -> SentResponse:
        """Answer exec, attach or portforward."""

    async def send_log(
        self, core: Core, request: Request, pod: Object, numbers: Mapping[str, int | None]
    ) -> Response | SentResponse:
        """Answer GET of a log; ``numbers`` are the integers among its options."""


@dataclass(slots=True)
class Core:
    """The state of a control plane that requests read and change; API servers can share store and registry."""

    store: Store
    registry: Registry
    trackers: Trackers
    clock: Clock
    tokens: ServiceAccountTokens
    version: KubernetesVersion = LATEST
    features: Collection[str] = ()
    """The feature gates that are on (:mod:`envtest.configuration.feature_gates`)."""
    admission: Admission = field(default_factory=NoAdmission)
    watchers: set[Watcher] = field(default_factory=set)
    """The watchers of the clients of this API server."""
    reviews: Reviews = field(init=False)
    authorizer: Authorizer = field(init=False)
    client: WebhookClient | None = None
    """The client of other servers: webhooks, pods that a scenario plays."""
    scenario: Simulation | None = None
    """The nodes and the behavior of pods; without it there are no nodes."""
    pod_service: PodService | None = None
    """What answers exec, logs and port-forward; without it pods have no containers."""

    def shard_selector(self, text: str) -> ShardSelector | None:
        """Return the ``shardSelector`` of a request; ``None`` if it has none, or if the feature is off.

        Raises StatusError (500).
        """
        if not text or SHARDED_LIST_AND_WATCH not in self.features:
            return None
        return parse_shard_selector(text)

    def close_watchers(self) -> None:
        """Close the watches of this API server's clients, because it stops."""
        for watcher in list(self.watchers):
            watcher.close()
