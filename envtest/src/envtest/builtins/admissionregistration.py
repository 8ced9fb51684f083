"""Strategies of admissionregistration.k8s.io: webhook configurations and admission policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.builtins.admission_rules import CONDITION_VARIABLES, condition_errors, rule_errors
from envtest.builtins.policy_rules import (
    match_resources_errors,
    param_kind_errors,
    param_ref_errors,
    validation_errors,
)
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import (
    label_selector_errors,
    webhook_service_errors,
    webhook_url_errors,
)
from envtest.context import RequestContext
from envtest.field_errors import FieldError, duplicate, invalid, not_supported, required
from envtest.metadata import dns_1035_label, dns_subdomain
from envtest.objects import Object

__all__ = ["PolicyBindingStrategy", "PolicyStrategy", "WebhookConfigurationStrategy"]

_REVIEW_VERSIONS = ("v1", "v1beta1")


class WebhookConfigurationStrategy(BuiltinStrategy):
    """Strategy of MutatingWebhookConfiguration and ValidatingWebhookConfiguration."""

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults, such as failure policy ``Fail``, match policy ``Equivalent`` and timeout 10 s."""
        for webhook in obj.get("webhooks") or ():
            for name, value in (
                ("failurePolicy", "Fail"),
                ("matchPolicy", "Equivalent"),
                ("namespaceSelector", {}),
                ("objectSelector", {}),
                ("timeoutSeconds", 10),
            ):
                if webhook.get(name) is None:
                    webhook[name] = value
            if self.resource.kind.startswith("Mutating"):
                webhook.setdefault("reinvocationPolicy", "Never")
            service = webhook["clientConfig"].get("service")
            if service is not None:
                service.setdefault("port", 443)
            for rule in webhook.get("rules") or ():
                rule.setdefault("scope", "*")

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of all webhooks."""
        names: set[str] = set()
        for position, webhook in enumerate(obj.get("webhooks") or ()):
            path = f"webhooks[{position}]"
            yield from _webhook_errors(webhook, path)
            name = webhook.get("name") or ""
            if name and name in names:
                yield duplicate(f"{path}.name", name)
            names.add(name)


def _webhook_errors(webhook: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _qualified_domain_errors(webhook.get("name") or "", f"{path}.name")
    for position, rule in enumerate(webhook.get("rules") or ()):
        yield from rule_errors(rule, f"{path}.rules[{position}]")
    for name, values in (("failurePolicy", ("Fail", "Ignore")), ("matchPolicy", ("Equivalent", "Exact"))):
        if webhook.get(name) not in values:
            yield not_supported(f"{path}.{name}", webhook.get(name) or "", values)
    effects = webhook.get("sideEffects")
    if not effects:
        yield required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    elif effects not in ("None", "NoneOnDryRun"):
        yield not_supported(f"{path}.sideEffects", effects, ("None", "NoneOnDryRun"))
    policy = webhook.get("reinvocationPolicy")
    if policy is not None and policy not in ("Never", "IfNeeded"):
        yield not_supported(f"{path}.reinvocationPolicy", policy, ("IfNeeded", "Never"))
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        yield invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    for name in ("namespaceSelector", "objectSelector"):
        yield from label_selector_errors(webhook.get(name), f"{path}.{name}")
    client = webhook.get("clientConfig") or {}
    if (client.get("url") is None) == (client.get("service") is None):
        yield required(f"{path}.clientConfig", "exactly one of url or service is required")
    elif client.get("url") is not None:
        yield from webhook_url_errors(f"{path}.clientConfig.url", client["url"])
    else:
        yield from webhook_service_errors(f"{path}.clientConfig.service", client["service"])
    yield from _version_errors(webhook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions")
    yield from condition_errors(webhook.get("matchConditions") or (), f"{path}.matchConditions")


def _qualified_domain_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    problems = dns_subdomain(name)
    if problems:
        yield invalid(path, name, ",".join(problems))
    elif len(name.split(".")) < 3:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _version_errors(versions: Sequence[str], path: str) -> Iterator[FieldError]:
    if not versions:
        yield required(path, "must specify one of v1, v1beta1")
        return
    seen: set[str] = set()
    for position, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{path}[{position}]", version, "duplicate version")
            continue
        seen.add(version)
        for problem in dns_1035_label(version):
            yield invalid(f"{path}[{position}]", version, problem)
    if not seen & set(_REVIEW_VERSIONS):
        yield invalid(path, list(versions), "must include at least one of v1, v1beta1")


class PolicyStrategy(BuiltinStrategy):
    """Strategy of ValidatingAdmissionPolicy and MutatingAdmissionPolicy."""

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the failure policy ``Fail`` and the match policy ``Equivalent``."""
        spec = obj["spec"]
        spec.setdefault("failurePolicy", "Fail")
        _constraint_defaults(spec.get("matchConstraints"))

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the match constraints, the parameters and the expressions."""
        spec = obj["spec"]
        if spec.get("failurePolicy") not in ("Fail", "Ignore"):
            yield not_supported("spec.failurePolicy", spec.get("failurePolicy") or "", ("Fail", "Ignore"))
        constraints = spec.get("matchConstraints")
        if constraints is None:
            yield required("spec.matchConstraints")
        else:
            if not constraints.get("resourceRules"):
                yield required("spec.matchConstraints.resourceRules")
            yield from match_resources_errors(constraints, "spec.matchConstraints")
        if spec.get("paramKind") is not None:
            yield from param_kind_errors(spec["paramKind"], "spec.paramKind")
        params = {} if spec.get("paramKind") is None else {"params": "dyn"}
        variables = {**CONDITION_VARIABLES, **params}
        yield from condition_errors(spec.get("matchConditions") or (), "spec.matchConditions", variables)
        if self.resource.kind.startswith("Validating"):
            yield from validation_errors(spec, obj["metadata"].get("name") or "")


class PolicyBindingStrategy(BuiltinStrategy):
    """Strategy of ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding."""

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the match policy ``Equivalent``."""
        _constraint_defaults(obj["spec"].get("matchResources"))

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the policy name, the parameters, the matched resources and the validation actions."""
        spec = obj["spec"]
        if not spec.get("policyName"):
            yield required("spec.policyName")
        elif problems := dns_subdomain(spec["policyName"]):
            yield invalid("spec.policyName", spec["policyName"], problems[0])
        if spec.get("paramRef") is not None:
            yield from param_ref_errors(spec["paramRef"], "spec.paramRef")
        if spec.get("matchResources") is not None:
            yield from match_resources_errors(spec["matchResources"], "spec.matchResources")
        if not self.resource.kind.startswith("Validating"):
            return
        actions = spec.get("validationActions") or ()
        if not actions:
            yield required("spec.validationActions", "at least one validation action is required")
        for position, action in enumerate(actions):
            if action not in ("Audit", "Deny", "Warn"):
                yield not_supported(f"spec.validationActions[{position}]", action, ("Audit", "Deny", "Warn"))
            elif action in actions[:position]:
                yield duplicate(f"spec.validationActions[{position}]", action)
        if "Deny" in actions and "Warn" in actions:
            text = (
                "must not contain both Deny and Warn (repeating the same validation failure information in the API "
                "response and headers serves no purpose)"
            )
            yield invalid("spec.validationActions", list(actions), text)


def _constraint_defaults(constraints: Object | None) -> None:
    if constraints is None:
        return
    constraints.setdefault("matchPolicy", "Equivalent")
    constraints.setdefault("namespaceSelector", {})
    constraints.setdefault("objectSelector", {})
    for name in ("resourceRules", "excludeResourceRules"):
        for rule in constraints.get(name) or ():
            rule.setdefault("scope", "*")
