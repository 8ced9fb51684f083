"""The admission chain: everything that sees a write between its decoding and the store, in kube-apiserver's order.

Mutating: the built-in plugins, mutating webhooks; when a webhook changed the object, all once more (reinvocation);
last the check that nobody hands out rights that they do not have. MutatingAdmissionPolicies are stored and not
followed: their expressions construct objects (``Object{...}``), which the CEL library here has no types for.
Validating: the built-in plugins, ValidatingAdmissionPolicies, validating webhooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from envtest.context import RequestContext
from envtest.objects import Object

__all__ = ["AdmissionChain", "Mutator", "Plugin", "Reinvocation", "Validator"]


@dataclass(slots=True)
class Reinvocation:
    """What the mutating steps of one request remember between the first and the second round.

    ``again`` is true in the second round; ``wanted`` asks for one. ``invoked`` are the reinvocable hooks that were
    called so far, ``pending`` those of them that have not seen the latest change; ``output`` what the webhooks left.
    """

    again: bool = False
    wanted: bool = False
    invoked: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    output: Object | None = None

    def changed(self) -> None:
        """A hook has changed the object: those called before it are to be called again."""
        self.wanted = True
        self.pending |= self.invoked
        self.invoked = set()


class Plugin:
    """A plugin that needs to ask nobody outside; both methods may raise StatusError."""

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Changes ``obj`` in place; it is empty for DELETE."""

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Allows or refuses the finished object."""


class Mutator(Protocol):
    """A mutating step that may have to wait for somebody."""

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None, rounds: Reinvocation) -> Object:
        """The object to go on with."""


class Validator(Protocol):
    """A validating step that may have to wait for somebody."""

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Allows or refuses the finished object."""


class AdmissionChain:
    """Implements ``envtest.server_core.Admission``.

    ``last`` sees the object after all mutation, as the last judge of what is going to be stored.
    """

    def __init__(
        self,
        plugins: Sequence[Plugin] = (),
        mutators: Sequence[Mutator] = (),
        validators: Sequence[Validator] = (),
        last: Sequence[Plugin] = (),
    ) -> None:
        self.plugins = list(plugins)
        self._mutators = list(mutators)
        self._validators = list(validators)
        self._last = list(last)

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None) -> Object:
        """The object to go on with: ``obj`` itself, or another one when a webhook changed it."""
        rounds = Reinvocation()
        for again in (False, True):
            rounds.again = again
            for plugin in self.plugins:
                plugin.admit(ctx, obj, old)
            for mutator in self._mutators:
                obj = await mutator.mutate(ctx, obj, old, rounds)
            if not rounds.wanted:
                break
        for plugin in self._last:
            plugin.admit(ctx, obj, old)
        return obj

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Raises StatusError when anybody refuses."""
        for plugin in self.plugins:
            plugin.validate(ctx, obj, old)
        for validator in self._validators:
            await validator.validate(ctx, obj, old)
