"""The review APIs: objects that are created, get the result in their status, and are not stored.

``authorization.k8s.io``: SubjectAccessReview with its Self and Local variants, SelfSubjectRulesReview.
``authentication.k8s.io``: TokenReview and SelfSubjectReview. The TokenRequest of a service account is in
:mod:`~envtest.auth.token_request`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from envtest.apimachinery.errors import StatusError, bad_request, invalid_object
from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    forbidden,
    go_json,
    invalid,
    required,
)
from envtest.apimachinery.label_selectors import parse_labels
from envtest.apimachinery.name_rules import label_value, qualified_name
from envtest.apimachinery.objects import Object
from envtest.apimachinery.user import User, user_from_info, user_info
from envtest.auth.attributes import Attributes
from envtest.auth.authenticator import Authenticator
from envtest.auth.rbac import RBACAuthorizer
from envtest.auth.tokens import InvalidToken
from envtest.registry.resource import RequestContext
from envtest.registry.selectors import parse_fields

__all__ = ["Reviews"]

_AUTHORIZATION: Final = "authorization.k8s.io"
_AUTHENTICATION: Final = "authentication.k8s.io"
_METADATA_ORDER: Final = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_MANAGED_ORDER: Final = (
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
)


class Reviews:
    """Completes reviews with the API server's own authorizer and authenticator."""

    def __init__(self, authorizer: RBACAuthorizer, authenticator: Authenticator) -> None:
        self._authorizer = authorizer
        self._authenticator = authenticator
        self._handlers: Mapping[tuple[str, str], Callable[[RequestContext, Object], Object]] = {
            (_AUTHORIZATION, "subjectaccessreviews"): self._subject_access,
            (_AUTHORIZATION, "selfsubjectaccessreviews"): self._self_subject_access,
            (_AUTHORIZATION, "localsubjectaccessreviews"): self._local_subject_access,
            (_AUTHORIZATION, "selfsubjectrulesreviews"): self._self_subject_rules,
            (_AUTHENTICATION, "selfsubjectreviews"): self._self_subject,
            (_AUTHENTICATION, "tokenreviews"): self._token,
        }

    def handles(self, group: str, plural: str) -> bool:
        """Report whether a resource is a review."""
        return (group, plural) in self._handlers

    def complete(self, ctx: RequestContext, obj: Object) -> Object:
        """Return the review with its status set; ``obj`` is decoded and has managedFields. Raises StatusError."""
        return self._handlers[ctx.info.group, ctx.info.plural](ctx, obj)

    def _subject_access(self, ctx: RequestContext, obj: Object) -> Object:
        spec = _spec(obj)
        errors = _access_errors(spec) + _user_errors(spec) + _metadata_errors(obj, "must be empty")
        return self._decide(obj, errors, _spec_user(spec))

    def _self_subject_access(self, ctx: RequestContext, obj: Object) -> Object:
        errors = _access_errors(_spec(obj)) + _metadata_errors(obj, "must be empty")
        return self._decide(obj, errors, ctx.user)

    def _local_subject_access(self, ctx: RequestContext, obj: Object) -> Object:
        spec = _spec(obj)
        namespace = (obj.get("metadata") or {}).get("namespace", "")
        errors = _access_errors(spec) + _user_errors(spec)
        errors += _metadata_errors(
            obj, "must be empty except for namespace", allowed=("namespace",)
        )
        resource = spec.get("resourceAttributes")
        if resource is not None and resource.get("namespace", "") != namespace:
            path = "spec.resourceAttributes.namespace"
            errors.append(
                invalid(path, resource.get("namespace", ""), "must match metadata.namespace")
            )
        if spec.get("nonResourceAttributes") is not None:
            value = _format_non_resource(spec["nonResourceAttributes"])
            errors.append(
                invalid("spec.nonResourceAttributes", value, "disallowed on this kind of request")
            )
        if not errors and namespace != ctx.namespace:
            raise bad_request(
                f"spec.resourceAttributes.namespace must match namespace: {ctx.namespace}"
            )
        return self._decide(obj, errors, _spec_user(spec))

    def _decide(self, obj: Object, errors: list[FieldError], user: User) -> Object:
        if errors:
            raise _invalid(errors)
        decision = self._authorizer.authorize(_requested_attributes(_spec(obj), user))
        status: dict[str, Any] = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        ignored = _ignored_selectors(_spec(obj).get("resourceAttributes") or {})
        if ignored:
            status["evaluationError"] = ignored
        obj["status"] = status
        return obj

    def _self_subject_rules(self, ctx: RequestContext, obj: Object) -> Object:
        namespace = _spec(obj).get("namespace", "")
        if not namespace:
            raise bad_request("no namespace on request")
        rules, missing = self._authorizer.rules_for(ctx.user, namespace)
        resource_rules = []
        path_rules = []
        for rule in rules:
            if rule.wire.get("resources"):
                keys = ("verbs", "apiGroups", "resources", "resourceNames")
                resource_rules.append(
                    {key: list(rule.wire[key]) for key in keys if rule.wire.get(key)}
                )
            if rule.urls:
                path_rules.append(
                    {"verbs": list(rule.wire["verbs"]), "nonResourceURLs": list(rule.urls)}
                )
        status = {
            "resourceRules": resource_rules,
            "nonResourceRules": path_rules,
            "incomplete": False,
        }
        if missing:
            status["evaluationError"] = (
                missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
            )
        # kube-apiserver answers with a new object: without the metadata and the namespace of the request
        return {
            "kind": "SelfSubjectRulesReview",
            "apiVersion": ctx.info.api_version,
            "metadata": {},
            "spec": {},
            "status": status,
        }

    def _self_subject(self, ctx: RequestContext, obj: Object) -> Object:
        return {
            "kind": "SelfSubjectReview",
            "apiVersion": ctx.info.api_version,
            "metadata": {"creationTimestamp": ctx.now},
            "status": {"userInfo": user_info(ctx.user)},
        }

    def _token(self, ctx: RequestContext, obj: Object) -> Object:
        spec = _spec(obj)
        token = spec.get("token", "")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        try:
            identity = self._authenticator.identify(token, spec.get("audiences"))
        except InvalidToken as error:
            obj["status"] = {"user": {}, "error": str(error)}
            return obj
        obj["status"] = {
            "authenticated": True,
            "user": user_info(identity.user),
            "audiences": identity.audiences,
        }
        return obj


def _spec(obj: Object) -> dict[str, Any]:
    spec: dict[str, Any] = obj.get("spec") or {}
    return spec


def _spec_user(spec: Mapping[str, Any]) -> User:
    return user_from_info(
        spec.get("user", ""), spec.get("uid", ""), spec.get("groups") or (), spec.get("extra")
    )


def _requested_attributes(spec: Mapping[str, Any], user: User) -> Attributes:
    resource = spec.get("resourceAttributes")
    if resource is None:
        path = spec["nonResourceAttributes"]
        return Attributes(user=user, verb=path.get("verb", ""), path=path.get("path", ""))
    keys = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
    return Attributes(
        user=user, is_resource_request=True, **{key: resource.get(key, "") for key in keys}
    )


def _access_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    resource = spec.get("resourceAttributes")
    path = spec.get("nonResourceAttributes")
    errors: list[FieldError] = []
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        errors.append(invalid("spec.nonResourceAttributes", _format_non_resource(path), why))
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid("spec.resourceAttributes", None, why)]
    if resource is None:
        return []
    for name in ("fieldSelector", "labelSelector"):
        selector = resource.get(name)
        if selector is not None:
            errors += _selector_errors(selector, f"spec.resourceAttributes.{name}", name)
    return errors


_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


def _ignored_selectors(resource: Mapping[str, Any]) -> str:
    """Return the message about selectors that cannot be parsed, which the decision ignores at least in part."""
    texts = []
    for name in ("fieldSelector", "labelSelector"):
        selector = resource.get(name) or {}
        requirements = selector.get("requirements") or ()
        unknown = [each for each in requirements if not _is_known(each, name)]
        path = f"spec.resourceAttributes.{name}"
        if len(unknown) < len(requirements) and unknown:
            texts.append(f"{path} partially ignored due to parse error")
        elif unknown or not _is_parsable(selector.get("rawSelector") or "", name):
            texts.append(f"{path} ignored due to parse error")
    return "; ".join(texts)


def _is_known(requirement: Mapping[str, Any], name: str) -> bool:
    """Return whether the server can match a requirement; in field selectors, it only compares with one value."""
    operator = requirement.get("operator")
    if name == "labelSelector":
        return operator in _OPERATORS
    return operator in ("In", "NotIn") and len(requirement.get("values") or ()) == 1


def _is_parsable(text: str, name: str) -> bool:
    try:
        if name == "labelSelector":
            parse_labels(text)
        else:
            parse_fields(text)
    except StatusError:
        return False
    return True


def _selector_errors(selector: Mapping[str, Any], path: str, name: str) -> Iterator[FieldError]:
    """Yield the errors of a selector, whose operators may be unknown: those of newer clients."""
    raw = selector.get("rawSelector") or ""
    requirements = selector.get("requirements") or ()
    if raw and requirements:
        text = "may not specified at the same time as requirements"
        yield invalid(f"{path}.rawSelector", raw, text)
    if not raw and not requirements:
        text = f"when {path} is specified, requirements or rawSelector is required"
        yield required(f"{path}.requirements", text)
    for position, requirement in enumerate(requirements):
        field_path = f"{path}.requirements[{position}]"
        yield from _operator_errors(requirement, field_path)
        if name == "labelSelector":
            yield from _label_errors(requirement, field_path)
        elif not requirement.get("key"):
            yield required(f"{field_path}.key", "must be specified")


def _operator_errors(requirement: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    operator = requirement.get("operator") or ""
    values = requirement.get("values") or ()
    if operator in ("In", "NotIn") and not values:
        text = "must be specified when `operator` is 'In' or 'NotIn'"
        yield required(f"{path}.values", text)
    if operator in ("Exists", "DoesNotExist") and values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield forbidden(f"{path}.values", text)


def _label_errors(requirement: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    key = requirement.get("key") or ""
    for problem in qualified_name(key):
        yield invalid(f"{path}.key", key, problem)
    for position, value in enumerate(requirement.get("values") or ()):
        for problem in label_value(value):
            yield invalid(f"{path}.values[{position}]", value, problem)


def _user_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid("spec.user", "", "at least one of user or group must be specified")]


def _metadata_errors(obj: Object, why: str, allowed: tuple[str, ...] = ()) -> list[FieldError]:
    metadata = obj.get("metadata") or {}
    if not any(value for key, value in metadata.items() if key not in ("managedFields", *allowed)):
        return []
    entries = ",".join(
        _go_struct_json(each, _MANAGED_ORDER) for each in metadata.get("managedFields") or ()
    )
    printable = {**metadata, "managedFields": Verbatim(f"[{entries}]")} if entries else metadata
    return [invalid("metadata", Verbatim(_go_struct_json(printable, _METADATA_ORDER)), why)]


def _go_struct_json(value: Mapping[str, Any], order: tuple[str, ...]) -> str:
    """Encode JSON as Go encodes a struct: fields in the order of their declaration."""
    fields = (
        f'"{key}":{value[key] if isinstance(value[key], Verbatim) else go_json(value[key])}'
        for key in order
        if key in value
    )
    return "{" + ",".join(fields) + "}"


def _format_non_resource(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {"Path": attributes.get("path", ""), "Verb": attributes.get("verb", "")}


def _invalid(errors: list[FieldError]) -> StatusError:
    return invalid_object(_AUTHORIZATION, "", "", errors)
