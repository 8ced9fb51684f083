"""Mutating and validating webhooks: selection, order of calls, and handling of their responses.

Mutating webhooks run one after another, ordered by the name of their configuration. When one changes the object,
those called before it that set ``reinvocationPolicy: IfNeeded`` are called again. Validating webhooks run concurrently.
Follows ``plugin/webhook/mutating`` and ``plugin/webhook/validating`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from envtest.admission.chain import Reinvocation
from envtest.admission.conditions import MatchConditions, authorization_check, request_variables
from envtest.admission.matching import Match, Matcher, Rule, label_selector
from envtest.admission.review import (
    AdmissionResponse,
    InvalidResponse,
    Review,
    admission_request,
    rejection,
)
from envtest.admission.versions import Unconvertible, convert, decode_patched
from envtest.admission.webhook_client import CallFailed, WebhookClient
from envtest.apimachinery.errors import (
    GroupResource,
    StatusError,
    bad_request,
    forbidden,
    internal_error,
    plain_error,
)
from envtest.apimachinery.field_errors import go_quote
from envtest.apimachinery.objects import Object
from envtest.apply.jsonpatch import json_patch
from envtest.auth.rbac import Authorizer
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.storage import Store

__all__ = ["MUTATING", "VALIDATING", "Hook", "HookSource", "MutatingWebhooks", "ValidatingWebhooks"]

_GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = GroupResource(_GROUP, "mutatingwebhookconfigurations")
VALIDATING: Final = GroupResource(_GROUP, "validatingwebhookconfigurations")
_DEFAULT_SECONDS: Final = 10
_STEP: Final = "MutatingAdmissionWebhook"


class _HookUnavailable(Exception):
    """Raised if a webhook cannot be called; the hook's failurePolicy decides whether the request is rejected."""


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
        self.conditions = MatchConditions(
            webhook.get("matchConditions") or (), ignore_errors=self.ignores_failure
        )


class HookSource:
    """The hooks of all configurations of one kind, ordered by configuration name; recompiled after a change."""

    def __init__(self, store: Store, resource: GroupResource) -> None:
        self._store = store
        self._resource = resource
        self._compiled_revision = -1
        self._hooks: list[Hook] = []

    def hooks(self) -> Sequence[Hook]:
        """Return the hooks in the order of their calls."""
        changes = self._store.changes(self._resource)
        if changes != self._compiled_revision:
            self._compiled_revision = changes
            self._hooks = [
                Hook(record.name, position, webhook)
                for record in self._store.list(self._resource)
                for position, webhook in enumerate(record.obj().get("webhooks") or ())
            ]
        return self._hooks


class _Webhooks:
    def __init__(
        self, source: HookSource, matcher: Matcher, client: WebhookClient, authorizer: Authorizer
    ) -> None:
        self._source = source
        self._matcher = matcher
        self._client = client
        self._authorizer = authorizer

    async def _match(
        self, hook: Hook, ctx: RequestContext, obj: Object, old: Object | None
    ) -> Match | None:
        """Return how the hook matches the request; errors of its selectors count only when its rules match."""
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
        new_version = await convert(ctx.info, match.info, obj)
        old_version = await convert(ctx.info, match.info, old) if old else old
        request = admission_request(ctx, new_version, old_version, match.info)
        decision = hook.conditions.evaluate(
            request_variables(request, ctx), authorization_check(self._authorizer, ctx.user)
        )
        if decision.error:
            raise forbidden(ctx.info.resource, ctx.name, decision.error)
        return match if decision.matches else None

    async def _post(
        self,
        hook: Hook,
        ctx: RequestContext,
        obj: Object,
        old: Object | None,
        info: ResourceInfo,
        *,
        mutating: bool,
    ) -> AdmissionResponse:
        """Call the hook. Raises _HookUnavailable, or StatusError when the hook does not support the request."""
        if ctx.dry_run and hook.side_effects not in ("None", "NoneOnDryRun"):
            raise bad_request(f"admission webhook {go_quote(hook.name)} does not support dry run")
        review = Review(admission_request(ctx, obj, old, info), hook.versions)
        try:
            seconds = _seconds_for(hook, ctx.deadline)
            body = await self._client.post(hook.client_config, review.body(), seconds=seconds)
            response = review.parse_response(body, mutating=mutating)
        except (CallFailed, ValueError) as error:
            raise _HookUnavailable(_failure(hook, f"failed to call webhook: {error}")) from error
        except InvalidResponse as error:
            raise _HookUnavailable(_failure(hook, str(error))) from error
        for key, value in response.audit.items():
            ctx.audit[f"{hook.name}/{key}"] = value
        for warning in response.warnings:
            ctx.warn(warning)
        return response


class MutatingWebhooks(_Webhooks):
    """The mutating webhooks, as a step of the admission chain."""

    async def mutate(
        self, ctx: RequestContext, obj: Object, old: Object | None, reinvocation: Reinvocation
    ) -> Object:
        """Return the object after all hooks that match the request."""
        hooks = self._source.hooks()
        if not hooks or self._matcher.is_exempt(ctx):
            return obj
        state = reinvocation.step(_STEP)
        if reinvocation.second_round:
            state.require_if_changed(obj)
        called = False
        for index, hook in enumerate(hooks):
            match = await self._match(hook, ctx, obj, old)
            if match is None or (reinvocation.second_round and hook.key not in state.pending):
                continue
            if not called:
                _drop_managed_fields_if_invalid(ctx, obj, old)
                called = True
            annotation = f"round_{int(reinvocation.second_round)}_index_{index}"
            try:
                patched = await self._call(hook, ctx, obj, old, match.info)
            except _HookUnavailable as error:
                if not hook.ignores_failure:
                    raise internal_error(str(error)) from error
                ctx.audit[f"failed-open.mutation.webhook.admission.k8s.io/{annotation}"] = hook.name
                patched = None
            mutated = {
                "configuration": hook.configuration,
                "webhook": hook.name,
                "mutated": patched is not None,
            }
            ctx.audit[f"mutation.webhook.admission.k8s.io/{annotation}"] = json.dumps(
                mutated, separators=(",", ":")
            )
            if patched is not None:
                obj = patched
                reinvocation.requested = True
                state.require()
            if hook.reinvocable:
                state.invoked.add(hook.key)
        if called:
            state.record_output(obj)
        return obj

    async def _call(
        self, hook: Hook, ctx: RequestContext, obj: Object, old: Object | None, info: ResourceInfo
    ) -> Object | None:
        """Return the object as patched by the hook, ``None`` when the hook does not change it."""
        new_version = await convert(ctx.info, info, obj)
        old_version = await convert(ctx.info, info, old) if old else old
        response = await self._post(hook, ctx, new_version, old_version, info, mutating=True)
        if not response.allowed:
            raise rejection(hook.name, response.status)
        if not response.patch:
            return None
        if not obj:
            why = "attempted to modify the object, which is not supported for this operation"
            raise internal_error(f"admission webhook {go_quote(hook.name)} {why}")
        patched = await _apply_patch(ctx, info, new_version, response.patch)
        if patched == new_version:
            return None
        return await convert(info, ctx.info, patched)


class ValidatingWebhooks(_Webhooks):
    """The validating webhooks, as a step of the admission chain."""

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Call all hooks that match the request. Raises the rejection of the first hook in order that rejects."""
        hooks = self._source.hooks()
        if not hooks or self._matcher.is_exempt(ctx):
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
        self,
        hook: Hook,
        index: int,
        ctx: RequestContext,
        obj: Object,
        old: Object | None,
        info: ResourceInfo,
    ) -> None:
        new_version = await convert(ctx.info, info, obj)
        old_version = await convert(ctx.info, info, old) if old else old
        try:
            response = await self._post(hook, ctx, new_version, old_version, info, mutating=False)
        except _HookUnavailable as error:
            if not hook.ignores_failure:
                raise internal_error(str(error)) from error
            ctx.audit[f"failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}"] = (
                hook.name
            )
            return
        if not response.allowed:
            raise rejection(hook.name, response.status)


def _drop_managed_fields_if_invalid(ctx: RequestContext, obj: Object, old: Object | None) -> None:
    """Remove the managed fields from a custom object whose values have wrong types.

    The real server cannot track such an object. The object is rejected in the end, but webhooks see it before that and
    can correct it.
    """
    if ctx.info.is_crd and "managedFields" in obj.get("metadata", {}):
        errors = ctx.info.strategy.validate(obj, old, ctx)
        if any(error.reason == "FieldValueTypeInvalid" for error in errors):
            del obj["metadata"]["managedFields"]


def _seconds_for(hook: Hook, deadline: float | None) -> int:
    """Return how long the call of a hook may take, rounded up: at most until the deadline of the request."""
    if deadline is None:
        return hook.seconds
    remaining = math.ceil(deadline - asyncio.get_running_loop().time())
    return max(1, min(hook.seconds, remaining))


def _failure(hook: Hook, reason: str) -> str:
    return f"failed calling webhook {go_quote(hook.name)}: {reason}"


async def _apply_patch(
    ctx: RequestContext, info: ResourceInfo, obj: Object, patch: list[Any]
) -> Object:
    """Apply the patch, then decode and default the object. Raises StatusError (500), as kube-apiserver does."""
    try:
        document = json_patch(obj, patch)
    except StatusError as error:
        raise internal_error(str(error.__cause__ or error.message)) from error
    try:
        patched, _ = await decode_patched(ctx, info, document)
    except Unconvertible as error:
        raise plain_error(str(error)) from error
    return patched
