"""The state that handlers share: the store, the registry, admission, field management and tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from envtest.apply.trackers import Trackers
from envtest.auth.reviews import Reviews
from envtest.auth.tokens import ServiceAccountTokens, SigningKey
from envtest.clock import Clock
from envtest.context import RequestContext
from envtest.objects import Object
from envtest.registry import Registry
from envtest.storage import Store

__all__ = ["Admission", "Core"]


class Admission(Protocol):
    """The admission chain. Both methods raise StatusError to reject; warnings are added to the context."""

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None) -> Object:
        """Return the object to continue with. For DELETE ``obj`` is empty and ``old`` is the object to delete."""

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Accept or reject the final object."""


class NoAdmission:
    """Accepts everything and changes nothing."""

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None) -> Object:
        """Return ``obj``."""
        return obj

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Accept the object."""


@dataclass(slots=True)
class Core:
    """The state of a control plane that requests read and change."""

    store: Store = field(default_factory=Store)
    registry: Registry = field(default_factory=Registry)
    clock: Clock = field(default_factory=Clock)
    admission: Admission = field(default_factory=NoAdmission)
    token_key: SigningKey | None = None
    """The key that signs service account tokens; generated if ``None``."""
    trackers: Trackers = field(init=False)
    tokens: ServiceAccountTokens = field(init=False)
    reviews: Reviews = field(init=False)

    def __post_init__(self) -> None:
        self.trackers = Trackers(self.registry)
        self.tokens = ServiceAccountTokens(self.store, key=self.token_key, clock=self.clock.time)

    def fork(self) -> Core:
        """Return a copy with the same objects, resources, time and token key; admission and reviews are not copied."""
        copy = Core(self.store.fork(), self.registry.fork(), self.clock.fork(), token_key=self.tokens.key)
        copy.trackers = self.trackers.fork(copy.registry)
        return copy
