"""CEL in admission: the variables of match conditions and policies, and the handling of evaluation errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from envtest.apimachinery.user import (
    AUTHENTICATED,
    User,
    service_account_groups,
    service_account_username,
)
from envtest.auth.attributes import Attributes
from envtest.auth.rbac import Authorizer
from envtest.registry.resource import RequestContext
from envtest.schema.cel import (
    Budget,
    BudgetError,
    CELCompileError,
    CELError,
    CELType,
    Program,
    compile_expression,
)
from envtest.schema.cel_authorizer import AuthorizationCheck, authorize_with
from envtest.schema.cel_messages import parse

__all__ = [
    "Expression",
    "ExpressionError",
    "MatchConditions",
    "MatchResult",
    "OutOfBudgetError",
    "authorization_check",
    "request_variables",
]

_RESOURCE_KEYS: Final = ("group", "resource", "subresource", "namespace", "name")
_CONDITIONS_BUDGET: Final = 2_500_000
"""What all match conditions of a policy or webhook may cost for a request."""

_VARIABLES: Final[dict[str, CELType]] = {
    "authorizer": "dyn",
    "namespaceObject": "dyn",
    "object": "dyn",
    "oldObject": "dyn",
    "params": "dyn",
    "request": "dyn",
    "variables": "dyn",
}


class ExpressionError(Exception):
    """Raised if an expression does not compile or fails on these variables; the message is kube-apiserver's.

    ``reason`` is the error of the evaluation, without the expression.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message

    @classmethod
    def of(cls, expression: str, reason: str) -> ExpressionError:
        """Return the error of an evaluation."""
        return cls(f"expression '{expression}' resulted in error: {reason}", reason)


class OutOfBudgetError(ExpressionError):
    """Raised if the expressions of a policy, or its match conditions, cost more than their budget."""

    def __init__(self) -> None:
        why = "validation failed due to running out of cost budget, no further validation rules will be run"
        super().__init__(why)


class Expression:
    """A CEL expression over the admission variables, compiled on first use.

    An invalid expression fails when it is evaluated and not when it is loaded, so that it does not affect the others.
    With ``patches`` it can construct ``Object`` and ``JSONPatch``; see :mod:`envtest.schema.cel_messages`.
    """

    __slots__ = ("_patches", "_program", "source")

    def __init__(self, source: str, *, patches: bool = False) -> None:
        self.source = source.strip()
        self._patches = patches
        self._program: Program | None = None

    def evaluate(
        self, variables: Mapping[str, Any], check: AuthorizationCheck, budget: Budget
    ) -> Any:
        """Evaluate the expression; ``check`` decides the calls of ``authorizer``. Raises ExpressionError.

        The cost is taken from ``budget``; without enough the error is OutOfBudgetError.
        """
        try:
            if self._program is None:
                source = parse(self.source).evaluated if self._patches else self.source
                self._program = compile_expression(source, _VARIABLES, patches=self._patches)
            with authorize_with(check):
                return self._program.evaluate(variables, budget)
        except BudgetError:
            raise OutOfBudgetError from None
        except CELCompileError as error:
            raise ExpressionError(f"compilation error: {error}") from error
        except CELError as error:
            raise ExpressionError.of(self.source, str(error)) from error


class MatchResult(NamedTuple):
    """Whether the match conditions hold. A non-empty ``error`` means that this is unknown: the request is rejected."""

    matches: bool
    error: str = ""


class MatchConditions:
    """The ``matchConditions`` of a webhook or policy; falsy when there are none."""

    def __init__(self, conditions: Sequence[Mapping[str, Any]], *, ignore_errors: bool) -> None:
        self._conditions = [Expression(condition["expression"]) for condition in conditions]
        self._ignore_errors = ignore_errors

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def evaluate(self, variables: Mapping[str, Any], check: AuthorizationCheck) -> MatchResult:
        """Evaluate all conditions over :func:`request_variables`.

        One false condition decides, regardless of errors in the others; errors count only if no condition is false.
        """
        errors: dict[str, None] = {}
        budget = Budget(_CONDITIONS_BUDGET)
        for condition in self._conditions:
            try:
                if condition.evaluate(variables, check, budget) is not True:
                    return MatchResult(matches=False)
            except OutOfBudgetError as error:
                return MatchResult(False, "" if self._ignore_errors else str(error))
            except ExpressionError as error:
                errors[str(error)] = None
        if not errors:
            return MatchResult(matches=True)
        if self._ignore_errors:
            return MatchResult(matches=False)
        messages = list(errors)
        if len(messages) == 1:
            return MatchResult(False, messages[0])
        return MatchResult(False, f"[{', '.join(messages)}]")


def request_variables(request: Mapping[str, Any], ctx: RequestContext) -> dict[str, Any]:
    """Return the variables for the ``request`` of an AdmissionReview; variables of policies only are ``None``."""
    info = ctx.info
    resource = (info.group, info.plural, ctx.subresource, ctx.namespace, ctx.name)
    return {
        "authorizer": {"requestResource": dict(zip(_RESOURCE_KEYS, resource, strict=True))},
        "namespaceObject": None,
        "object": request["object"],
        "oldObject": request["oldObject"],
        "params": None,
        "request": {
            key: value for key, value in request.items() if key not in ("object", "oldObject")
        },
        "variables": {},
    }


def authorization_check(authorizer: Authorizer, user: User) -> AuthorizationCheck:
    """Return the RBAC check behind the CEL variable ``authorizer``.

    It checks ``user``, or the service account that the expression names.
    """

    def check(attributes: dict[str, Any], verb: str) -> tuple[bool, str]:
        subject = user
        if "account" in attributes:
            namespace, _, name = attributes["account"].partition("/")
            groups = (*service_account_groups(namespace), AUTHENTICATED)
            subject = User(service_account_username(namespace, name), groups=groups)
        if "path" in attributes:
            request = Attributes(user=subject, verb=verb, path=attributes["path"])
        else:
            resource = {key: attributes.get(key, "") for key in _RESOURCE_KEYS}
            request = Attributes(
                user=subject, verb=verb, version="*", is_resource_request=True, **resource
            )
        decision = authorizer.authorize(request)
        return decision.allowed, decision.reason

    return check
