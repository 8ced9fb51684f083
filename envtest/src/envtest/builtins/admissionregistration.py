"""Strategy of webhook configurations; their rules and match conditions are shared with admission policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    internal,
    invalid,
    not_supported,
    required,
    too_many,
)
from envtest.apimachinery.name_rules import dns_1035_label, dns_subdomain, qualified_name
from envtest.apimachinery.objects import Object
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import (
    label_selector_errors,
    webhook_service_errors,
    webhook_url_errors,
)
from envtest.registry.resource import RequestContext
from envtest.schema.cel import CELCompileError, CELProgramError, CELType

__all__ = [
    "WebhookConfigurationStrategy",
    "compile_error",
    "condition_errors",
    "expression_errors",
    "rule_errors",
]

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_REVIEW_VERSIONS = ("v1", "v1beta1")


class WebhookConfigurationStrategy(BuiltinStrategy):
    """Strategy of MutatingWebhookConfiguration and ValidatingWebhookConfiguration."""

    has_qualified_finalizers = False

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
    for name, values in (
        ("failurePolicy", ("Fail", "Ignore")),
        ("matchPolicy", ("Equivalent", "Exact")),
    ):
        if webhook.get(name) not in values:
            yield not_supported(f"{path}.{name}", webhook.get(name) or "", values)
    effects = webhook.get("sideEffects")
    if not effects:
        yield required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    elif effects not in ("None", "NoneOnDryRun"):
        yield not_supported(f"{path}.sideEffects", effects, ("None", "NoneOnDryRun"))
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        yield invalid(
            f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds"
        )
    for name in ("namespaceSelector", "objectSelector"):
        yield from label_selector_errors(webhook.get(name), f"{path}.{name}")
    policy = webhook.get("reinvocationPolicy")
    if policy is not None and policy not in ("Never", "IfNeeded"):
        yield not_supported(f"{path}.reinvocationPolicy", policy, ("IfNeeded", "Never"))
    client = webhook.get("clientConfig") or {}
    if (client.get("url") is None) == (client.get("service") is None):
        yield required(f"{path}.clientConfig", "exactly one of url or service is required")
    elif client.get("url") is not None:
        yield from webhook_url_errors(f"{path}.clientConfig.url", client["url"])
    else:
        yield from webhook_service_errors(f"{path}.clientConfig.service", client["service"])
    yield from condition_errors(webhook.get("matchConditions") or (), f"{path}.matchConditions")
    yield from _version_errors(
        webhook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions"
    )


def _qualified_domain_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    problems = dns_subdomain(name)
    if problems:
        yield invalid(path, name, ",".join(problems))
    elif len(name.split(".")) < 3:
        yield invalid(
            path, name, "should be a domain with at least three segments separated by dots"
        )


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


def rule_errors(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a rule, which selects requests by operation and resource."""
    operations = rule.get("operations") or ()
    if not operations:
        yield required(f"{path}.operations")
    if "*" in operations and len(operations) > 1:
        text = "if '*' is present, must not specify other operations"
        yield invalid(f"{path}.operations", list(operations), text)
    for position, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{position}]", operation, _OPERATIONS)
    for name in ("apiGroups", "apiVersions", "resources"):
        values = rule.get(name) or ()
        field_path = f"{path}.{name}"
        if not values:
            yield required(field_path)
        elif name == "resources":
            yield from _resource_errors(values, field_path)
        elif "*" in values and len(values) > 1:
            noun = "API groups" if name == "apiGroups" else "API versions"
            yield invalid(
                field_path, list(values), f"if '*' is present, must not specify other {noun}"
            )
        if name == "apiVersions":
            for position, value in enumerate(values):
                if not value:
                    yield required(f"{field_path}[{position}]")
    scope = rule.get("scope")
    if scope is not None and scope not in ("*", "Cluster", "Namespaced"):
        yield not_supported(f"{path}.scope", scope, ("*", "Cluster", "Namespaced"))


def _resource_errors(resources: Sequence[str], path: str) -> Iterator[FieldError]:
    every_sub = set()
    every_resource = set()
    for position, each in enumerate(resources):
        field_path = f"{path}[{position}]"
        if not each:
            yield required(field_path)
        if each == "*/*" and len(resources) > 1:
            yield invalid(
                path, list(resources), "if '*/*' is present, must not specify other resources"
            )
        resource, slash, sub = each.partition("/")
        if not slash:
            continue
        if sub == "*":
            every_sub.add(resource)
        elif resource in every_sub:
            yield invalid(
                field_path, each, f"if '{resource}/*' is present, must not specify {each}"
            )
        if resource == "*":
            every_resource.add(sub)
        elif sub in every_resource:
            yield invalid(field_path, each, f"if '*/{sub}' is present, must not specify {each}")
    # kube-apiserver compares only the last resource without a subresource: ["pods", "*"] is valid.
    plain = [each for each in resources if each and "/" not in each]
    if "*" in plain and plain[-1] != "*":
        text = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, list(resources), text)


def condition_errors(
    conditions: Sequence[Mapping[str, Any]], path: str, *, params: bool = False
) -> Iterator[FieldError]:
    """Yield the errors of match conditions; with ``params`` they can use the parameters of a policy."""
    if len(conditions) > 64:
        yield too_many(path, len(conditions), 64)
    names: set[str] = set()
    for position, condition in enumerate(conditions):
        field_path = f"{path}[{position}]"
        name = condition.get("name") or ""
        expression = (condition.get("expression") or "").strip()
        if expression:
            yield from expression_errors(
                expression, f"{field_path}.expression", ("bool",), params=params
            )
        else:
            yield required(f"{field_path}.expression")
        if not name:
            yield required(f"{field_path}.name")
        else:
            for problem in qualified_name(name):
                yield invalid(f"{field_path}.name", name, problem)
        if name and name in names:
            yield duplicate(f"{field_path}.name", name)
        names.add(name)


def compile_error(error: CELCompileError, path: str, expression: str) -> FieldError:
    """Return the error of a field whose CEL expression does not compile."""
    if isinstance(error, CELProgramError):
        return internal(path, f"program instantiation failed: {error}")
    return invalid(path, expression, f"compilation failed: {error}")


def expression_errors(
    expression: str, path: str, kinds: Sequence[CELType], **environment: Any
) -> Iterator[FieldError]:
    """Yield the errors of a CEL expression whose value must have one of ``kinds``.

    ``environment`` are the arguments of :func:`envtest.schema.cel_admission.check_expression`.
    """
    from envtest.schema.cel_admission import check_expression  # lazy: few tests store expressions

    try:
        kind = check_expression(expression, **environment)
    except CELCompileError as error:
        yield compile_error(error, path, expression)
        return
    if kind not in kinds:
        expected = kinds[0] if len(kinds) == 1 else f"one of [{' '.join(kinds)}]"
        yield invalid(path, expression, f"must evaluate to {expected} but got {kind}")
