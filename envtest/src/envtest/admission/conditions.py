"""CEL in admission: the variables that match conditions and policies see, and how their errors count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from envtest.auth.attributes import Attributes
from envtest.auth.rbac import Authorizer
from envtest.auth.user import AUTHENTICATED, User, service_account_groups, service_account_username
from envtest.context import RequestContext
from envtest.schema.cel import CELCompileError, CELError, Kind, Program, compile_expression
from envtest.schema.cel_authorizer import Answer, answering

__all__ = ["Conclusion", "Expression", "ExpressionError", "MatchConditions", "asking", "request_variables"]

_RESOURCE: Final = ("group", "resource", "subresource", "namespace", "name")
_VARIABLES: Final[dict[str, Kind]] = {
    "authorizer": "dyn",
    "namespaceObject": "dyn",
    "object": "dyn",
    "oldObject": "dyn",
    "params": "dyn",
    "request": "dyn",
    "variables": "dyn",
}


class ExpressionError(Exception):
    """An expression does not compile, or has no value for these variables; worded as the real server does."""


class Expression:
    """A CEL expression over the variables of admission; compiled when it is first needed.

    A broken one fails when it is evaluated, as it must not keep others from working.
    """

    __slots__ = ("_program", "source")

    def __init__(self, source: str) -> None:
        self.source = source.strip()
        self._program: Program | None = None

    def evaluate(self, variables: Mapping[str, Any], answer: Answer) -> Any:
        """The value; ``answer`` decides what ``authorizer`` says. Raises ExpressionError."""
        try:
            if self._program is None:
                self._program = compile_expression(self.source, _VARIABLES)
            with answering(answer):
                return self._program.evaluate(variables)
        except CELCompileError as error:
            raise ExpressionError(f"compilation error: {error}") from error
        except CELError as error:
            raise ExpressionError(f"expression '{self.source}' resulted in error: {error}") from error


class Conclusion(NamedTuple):
    """Whether the conditions hold; ``error`` says why that cannot be known, and then the request is refused."""

    matches: bool
    error: str = ""


class MatchConditions:
    """The ``matchConditions`` of a webhook or policy; true in the sense of ``bool`` where there are any."""

    def __init__(self, conditions: Sequence[Mapping[str, Any]], *, ignore_errors: bool) -> None:
        self._conditions = [Expression(condition["expression"]) for condition in conditions]
        self._ignore_errors = ignore_errors

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def evaluate(self, variables: Mapping[str, Any], answer: Answer) -> Conclusion:
        """Decides with :func:`request_variables`: one false condition decides, errors count only after that."""
        errors: dict[str, None] = {}
        for condition in self._conditions:
            try:
                if condition.evaluate(variables, answer) is not True:
                    return Conclusion(matches=False)
            except ExpressionError as error:
                errors[str(error)] = None
        if not errors:
            return Conclusion(matches=True)
        if self._ignore_errors:
            return Conclusion(matches=False)
        texts = list(errors)
        return Conclusion(False, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def request_variables(request: Mapping[str, Any], ctx: RequestContext) -> dict[str, Any]:
    """The variables for an AdmissionReview's ``request``; what only policies have is ``None``."""
    info = ctx.info
    resource = (info.group, info.plural, ctx.subresource, ctx.namespace, ctx.name)
    return {
        "authorizer": {"requestResource": dict(zip(_RESOURCE, resource, strict=True))},
        "namespaceObject": None,
        "object": request["object"],
        "oldObject": request["oldObject"],
        "params": None,
        "request": {key: value for key, value in request.items() if key not in ("object", "oldObject")},
        "variables": {},
    }


def asking(authorizer: Authorizer, user: User) -> Answer:
    """What ``authorizer`` of CEL decides by: RBAC, for ``user`` unless the expression names a service account."""

    def answer(asked: dict[str, Any], verb: str) -> tuple[bool, str]:
        asker = user
        if "account" in asked:
            namespace, _, name = asked["account"].partition("/")
            groups = (*service_account_groups(namespace), AUTHENTICATED)
            asker = User(service_account_username(namespace, name), groups=groups)
        if "path" in asked:
            attributes = Attributes(user=asker, verb=verb, path=asked["path"])
        else:
            known = {key: asked.get(key, "") for key in _RESOURCE}
            attributes = Attributes(user=asker, verb=verb, version="*", is_resource_request=True, **known)
        decision = authorizer.authorize(attributes)
        return decision.allowed, decision.reason

    return answer
