"""The admission chain: all steps between decoding a write and storing it, in kube-apiserver's order.

Mutating phase: the built-in plugins, MutatingAdmissionPolicies, mutating webhooks. When a policy or webhook changed the
object, the whole phase runs a second time (reinvocation). The RBAC escalation check comes last.
Validating phase: the built-in plugins, ValidatingAdmissionPolicies, validating webhooks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext
from envtest.storage import Store

__all__ = [
    "AdmissionChain",
    "Invocations",
    "Mutator",
    "Plugin",
    "Reinvocation",
    "StorePlugin",
    "Validator",
]


@dataclass(slots=True)
class Invocations:
    """The reinvocable hooks or policies of one step, by key.

    ``invoked`` has those invoked so far, ``pending`` those that have not seen the latest change. ``output`` is a copy
    of the object that the step returned.
    """

    invoked: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    output: Object | None = None

    def require(self) -> None:
        """Invoke again all that were invoked so far."""
        self.pending |= self.invoked
        self.invoked = set()

    def require_if_changed(self, obj: Object) -> None:
        """Invoke all again when the object is not the output of the first round."""
        if self.output != obj:
            self.require()

    def record_output(self, obj: Object) -> None:
        """Store a copy of the object."""
        self.output = orjson.loads(orjson.dumps(obj))


@dataclass(slots=True)
class Reinvocation:
    """State that the mutating steps of one request keep between the first and the second round.

    ``second_round`` is true in the second round, ``requested`` is set when a second round is necessary.
    """

    second_round: bool = False
    requested: bool = False
    _steps: dict[str, Invocations] = field(default_factory=dict)

    def step(self, name: str) -> Invocations:
        """Return the state of a step."""
        return self._steps.setdefault(name, Invocations())


class Plugin:
    """An admission plugin that makes no network call. Both methods raise StatusError to reject the request."""

    resources: Collection[GroupResource] = ()
    """The resources whose requests the plugin gets; all if it is empty."""

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Mutate ``obj`` in place; for DELETE it is empty."""

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Validate the object after mutation."""


class StorePlugin(Plugin):
    """A plugin that reads other objects."""

    def __init__(self, store: Store) -> None:
        self._store = store


class Mutator(Protocol):
    """A mutating step that can wait, for example for a webhook."""

    async def mutate(
        self, ctx: RequestContext, obj: Object, old: Object | None, reinvocation: Reinvocation
    ) -> Object:
        """Return the object for the next step."""


class Validator(Protocol):
    """A validating step that can wait, for example for a webhook."""

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Validate the object after mutation. Raises StatusError to reject the request."""


def _plugins_for(plugins: Sequence[Plugin], resource: GroupResource) -> list[Plugin]:
    """Return the plugins of a resource and those of all resources, in their order."""
    return [plugin for plugin in plugins if not plugin.resources or resource in plugin.resources]


class AdmissionChain:
    """The implementation of ``envtest.writes.server_core.Admission``.

    The ``final_plugins`` run once, after all mutation, on the object that is about to be stored.
    """

    def __init__(
        self,
        plugins: Sequence[Plugin] = (),
        mutators: Sequence[Mutator] = (),
        validators: Sequence[Validator] = (),
        final_plugins: Sequence[Plugin] = (),
    ) -> None:
        resources = {resource for plugin in plugins for resource in plugin.resources}
        self._plugins_of = {resource: _plugins_for(plugins, resource) for resource in resources}
        self._general_plugins = [plugin for plugin in plugins if not plugin.resources]
        self._mutators = list(mutators)
        self._validators = list(validators)
        self._final_plugins = list(final_plugins)

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None) -> Object:
        """Return the object after mutation: ``obj`` itself, or a new one when a policy or webhook changed it."""
        reinvocation = Reinvocation()
        plugins = self._plugins_of.get(ctx.info.resource, self._general_plugins)
        for second_round in (False, True):
            reinvocation.second_round = second_round
            for plugin in plugins:
                plugin.admit(ctx, obj, old)
            for mutator in self._mutators:
                obj = await mutator.mutate(ctx, obj, old, reinvocation)
            if not reinvocation.requested:
                break
        for plugin in self._final_plugins:
            plugin.admit(ctx, obj, old)
        return obj

    async def connect(self, ctx: RequestContext, options: Object) -> None:
        """Review a connection (CONNECT), whose object are its options: only policies and webhooks see connections."""
        reinvocation = Reinvocation()
        for second_round in (False, True):
            reinvocation.second_round = second_round
            for mutator in self._mutators:
                options = await mutator.mutate(ctx, options, None, reinvocation)
            if not reinvocation.requested:
                break
        for validator in self._validators:
            await validator.validate(ctx, options, None)

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Validate the object after mutation. Raises StatusError when a plugin, policy or webhook rejects it."""
        for plugin in self._plugins_of.get(ctx.info.resource, self._general_plugins):
            plugin.validate(ctx, obj, old)
        for validator in self._validators:
            await validator.validate(ctx, obj, old)
