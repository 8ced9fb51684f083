"""Mutating and validating webhooks: which are called, in which order, and what becomes of their answers.

Mutating ones run one after the other, configurations by name; one that changed the object has those before it called
again, if they ask for that. Validating ones run side by side. Follows ``plugin/webhook/mutating`` and
``plugin/webhook/validating`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from envtest.apply.jsonpatch import json_patch
from envtest.auth.rbac import Authorizer
from envtest.context import RequestContext
from envtest.errors import GroupResource, StatusError, bad_request, forbidden, internal_error
from envtest.field_errors import go_quote
from envtest.objects import Object
from envtest.registry import ResourceInfo
from envtest.storage import Store

from .chain import Reinvocation
from .conditions import MatchConditions, asking, request_variables
from .matching import Match, Matcher, Rule, label_selector
from .review import BadAnswer, Review, Verdict, admission_request, rejection
from .versions import converted
from .webhook_client import CallFailed, WebhookClient

__all__ = ["MUTATING", "VALIDATING", "Hook", "HookSource", "MutatingWebhooks", "ValidatingWebhooks"]

_GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = GroupResource(_GROUP, "mutatingwebhookconfigurations")
VALIDATING: Final = GroupResource(_GROUP, "validatingwebhookconfigurations")
_DEFAULT_SECONDS: Final = 10


class _CallError(Exception):
    """A webhook could not be asked; whether that refuses the request is the hook's failurePolicy."""


class Hook:
    """One webhook of a configuration, compiled."""

    def __init__(self, configuration: str, position: int, webhook: Mapping[str, Any]) -> None:
        self.configuration = configuration
        self.name: str = webhook["name"]
        self.key = f"{configuration}/{self.name}/{position}"
        self.client_config: Mapping[str, Any] = webhook["clientConfig"]
        self.rules = [Rule(rule) for rule in webhook.get("rules") or ()]
        self.namespaces = label_selector(webhook.get("namespaceSelector"))
        self.objects = label_selector(webhook.get("objectSelector"))
        self.ignores_failure = webhook.get("failurePolicy") == "Ignore"
        self.equivalent = webhook.get("matchPolicy", "Equivalent") == "Equivalent"
        self.seconds: int = webhook.get("timeoutSeconds") or _DEFAULT_SECONDS
        self.side_effects: str | None = webhook.get("sideEffects")
        self.reinvocable = webhook.get("reinvocationPolicy") == "IfNeeded"
        self.versions = tuple(webhook.get("admissionReviewVersions") or ("v1",))
        self.conditions = MatchConditions(webhook.get("matchConditions") or (), ignore_errors=self.ignores_failure)


class HookSource:
    """The hooks of all configurations of one kind, by configuration name; compiled again when one changed."""

    def __init__(self, store: Store, resource: GroupResource) -> None:
        self._store = store
        self._resource = resource
        self._seen = -1
        self._hooks: list[Hook] = []

    def hooks(self) -> Sequence[Hook]:
        """The hooks, in the order in which they are called."""
        changes = self._store.changes(self._resource)
        if changes != self._seen:
            self._seen = changes
            self._hooks = [
                Hook(record.name, position, webhook)
                for record in self._store.list(self._resource)
                for position, webhook in enumerate(record.obj().get("webhooks") or ())
            ]
        return self._hooks


class _Webhooks:
    def __init__(self, source: HookSource, matcher: Matcher, client: WebhookClient, authorizer: Authorizer) -> None:
        self._source = source
        self._matcher = matcher
        self._client = client
        self._authorizer = authorizer

    async def _match(self, hook: Hook, ctx: RequestContext, obj: Object, old: Object | None) -> Match | None:
        """How the hook concerns the request; errors of its selectors count only where its rules do."""
        if not self._matcher.object_matches(obj, old, hook.objects):
            return None
        try:
            if not self._matcher.namespace_matches(ctx, obj, hook.namespaces):
                return None
        except StatusError:
            if self._matcher.match_rules(ctx, obj, hook.rules, equivalent=hook.equivalent) is None:
                return None
            raise
        match = self._matcher.match_rules(ctx, obj, hook.rules, equivalent=hook.equivalent)
        if match is None or not hook.conditions:
            return match
        new_version = await converted(ctx.info, match.info, obj)
        old_version = await converted(ctx.info, match.info, old) if old else old
        request = admission_request(ctx, new_version, old_version, match.info)
        decision = hook.conditions.evaluate(request_variables(request, ctx), asking(self._authorizer, ctx.user))
        if decision.error:
            raise forbidden(ctx.info.resource, ctx.name, decision.error)
        return match if decision.matches else None

    async def _ask(
        self, hook: Hook, ctx: RequestContext, obj: Object, old: Object | None, info: ResourceInfo, *, mutating: bool
    ) -> Verdict:
        """The hook's verdict. Raises _CallError, or StatusError where the hook may not be asked at all."""
        if ctx.dry_run and hook.side_effects not in ("None", "NoneOnDryRun"):
            raise bad_request(f"admission webhook {go_quote(hook.name)} does not support dry run")
        review = Review(admission_request(ctx, obj, old, info), hook.versions)
        try:
            answer = await self._client.post(hook.client_config, review.body(), seconds=hook.seconds)
            verdict = review.verdict(answer, mutating=mutating)
        except (CallFailed, ValueError) as error:
            raise _CallError(_failed(hook, f"failed to call webhook: {error}")) from error
        except BadAnswer as error:
            raise _CallError(_failed(hook, str(error))) from error
        for key, value in verdict.audit.items():
            ctx.audit[f"{hook.name}/{key}"] = value
        for warning in verdict.warnings:
            ctx.warn(warning)
        return verdict


class MutatingWebhooks(_Webhooks):
    """The mutating webhooks, as a step of the chain."""

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None, rounds: Reinvocation) -> Object:
        """The object after all hooks that it concerns."""
        hooks = self._source.hooks()
        if not hooks or self._matcher.exempt(ctx):
            return obj
        if rounds.again and rounds.output != obj:
            rounds.pending |= rounds.invoked
        called = False
        for index, hook in enumerate(hooks):
            match = await self._match(hook, ctx, obj, old)
            if match is None or (rounds.again and hook.key not in rounds.pending):
                continue
            if not called:
                _disown_unfit(ctx, obj, old)
                called = True
            annotation = f"round_{int(rounds.again)}_index_{index}"
            try:
                patched = await self._call(hook, ctx, obj, old, match.info)
            except _CallError as error:
                if not hook.ignores_failure:
                    raise internal_error(str(error)) from error
                ctx.audit[f"failed-open.mutation.webhook.admission.k8s.io/{annotation}"] = hook.name
                patched = None
            mutated = {"configuration": hook.configuration, "webhook": hook.name, "mutated": patched is not None}
            ctx.audit[f"mutation.webhook.admission.k8s.io/{annotation}"] = json.dumps(mutated, separators=(",", ":"))
            if patched is not None:
                obj = patched
                rounds.changed()
            if hook.reinvocable:
                rounds.invoked.add(hook.key)
        if called:
            rounds.output = orjson.loads(orjson.dumps(obj))
        return obj

    async def _call(
        self, hook: Hook, ctx: RequestContext, obj: Object, old: Object | None, info: ResourceInfo
    ) -> Object | None:
        """The object as the hook wants it, ``None`` where that is as it is."""
        shown = await converted(ctx.info, info, obj)
        shown_old = await converted(ctx.info, info, old) if old else old
        verdict = await self._ask(hook, ctx, shown, shown_old, info, mutating=True)
        if not verdict.allowed:
            raise rejection(hook.name, verdict.status)
        if not verdict.patch:
            return None
        if not obj:
            why = "attempted to modify the object, which is not supported for this operation"
            raise internal_error(f"admission webhook {go_quote(hook.name)} {why}")
        patched = _patched(ctx, info, shown, verdict.patch)
        if patched == shown:
            return None
        return await converted(info, ctx.info, patched)


class ValidatingWebhooks(_Webhooks):
    """The validating webhooks, as a step of the chain."""

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Asks all hooks that the request concerns; raises the refusal of the first that refuses, in their order."""
        hooks = self._source.hooks()
        if not hooks or self._matcher.exempt(ctx):
            return
        calls = []
        for index, hook in enumerate(hooks):
            match = await self._match(hook, ctx, obj, old)
            if match is not None:
                calls.append(self._call(hook, index, ctx, obj, old, match.info))
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _call(
        self, hook: Hook, index: int, ctx: RequestContext, obj: Object, old: Object | None, info: ResourceInfo
    ) -> None:
        shown = await converted(ctx.info, info, obj)
        shown_old = await converted(ctx.info, info, old) if old else old
        try:
            verdict = await self._ask(hook, ctx, shown, shown_old, info, mutating=False)
        except _CallError as error:
            if not hook.ignores_failure:
                raise internal_error(str(error)) from error
            ctx.audit[f"failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}"] = hook.name
            return
        if not verdict.allowed:
            raise rejection(hook.name, verdict.status)


def _disown_unfit(ctx: RequestContext, obj: Object, old: Object | None) -> None:
    """Takes the managed fields from a custom object with values of wrong types.

    The real server cannot track such an object; it will be refused, but until then hooks see it, and may mend it.
    """
    if ctx.info.is_crd and "managedFields" in obj.get("metadata", {}):
        errors = ctx.info.strategy.validate(obj, old, ctx)
        if any(error.reason == "FieldValueTypeInvalid" for error in errors):
            del obj["metadata"]["managedFields"]


def _failed(hook: Hook, reason: str) -> str:
    return f"failed calling webhook {go_quote(hook.name)}: {reason}"


def _patched(ctx: RequestContext, info: ResourceInfo, obj: Object, patch: list[Any]) -> Object:
    """The object after the patch, decoded and defaulted again. Raises StatusError (500), as the real server does."""
    try:
        patched: Object = json_patch(obj, patch)
    except StatusError as error:
        raise internal_error(str(error.__cause__ or error.message)) from error
    subresource = info.subresources.get(ctx.subresource)
    if subresource is not None and subresource.kind not in ("", info.kind):
        return patched
    try:
        info.strategy.decode(patched, ctx)
    except StatusError as error:
        _, found, decoder = error.message.partition("json: ")
        raise internal_error(f"json: {decoder}" if found else error.message) from error
    info.strategy.default(patched)
    return patched
