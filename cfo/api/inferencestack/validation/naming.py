"""Whether the names that follow from a stack's name, overrides and applications are valid names of objects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cfo.api.inferencestack.kinds import OPERATOR_VERSION_LABEL, is_operator_version, operator_version_of
from cfo.api.inferencestack.names import APPLICATION_PREFIX, CHART_NAME, GATEWAY
from cfo.api.inferencestack.resolution import ResolvedStack
from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import Path, forbidden, invalid

__all__ = ["APPLICATIONS", "label_errors", "name_errors"]

APPLICATIONS: Final = Path("spec", "applications")

_MAX_NAME: Final = 63
_MAX_APPLICATION: Final = _MAX_NAME - len(APPLICATION_PREFIX)
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def label_errors(stack: Object) -> Iterator[FieldError]:
    """Yield an error if the label ``operatorVersion`` has a value that no operator serves."""
    value = operator_version_of(stack)
    if value and not is_operator_version(value):
        path = Path("metadata", "labels").key(OPERATOR_VERSION_LABEL)
        yield invalid(path, value, "operatorVersion must be of the form v<major>, such as v2")


def name_errors(stack: ResolvedStack) -> Iterator[FieldError]:
    """Yield the errors in names. The names of the stack itself are not checked if it has none yet."""
    names = stack.names
    override = stack.spec.get("fullnameOverride")
    chart_name = stack.spec.get("nameOverride") or CHART_NAME
    if not _LABEL_VALUE.fullmatch(chart_name):
        yield invalid(Path("spec", "nameOverride"), chart_name, "must be a valid label value")
        return
    if names.stack or override:
        path = Path("spec", "fullnameOverride") if override else Path("metadata", "name")
        value = override or names.stack
        if not _SERVICE_NAME.fullmatch(names.fullname):
            yield invalid(
                path,
                value,
                f"{names.fullname!r}, the prefix of all names, must be a DNS label that begins with a letter",
            )
        elif len(names.gateway) > _MAX_NAME:
            yield invalid(
                path, value, f"the names derived from it exceed {_MAX_NAME} characters, such as {names.gateway!r}"
            )
    if len(names.stack) > _MAX_NAME:
        yield invalid(Path("metadata", "name"), names.stack, f"must have at most {_MAX_NAME} characters")
    yield from _service_account_errors(stack)
    for application in stack.applications:
        yield from _application_errors(stack, application)


def _service_account_errors(stack: ResolvedStack) -> Iterator[FieldError]:
    path = Path("spec", "serviceAccount", "name")
    name = stack.service_account.get("name")
    if name and (not _DNS_NAME.fullmatch(name) or len(name) > 253):
        yield invalid(path, name, "must be a DNS name")
    elif name == "default" and stack.service_account.get("create"):
        yield forbidden(path, "the ServiceAccount default belongs to the namespace; set create to false to use it")


def _application_errors(stack: ResolvedStack, application: str) -> Iterator[FieldError]:
    path = APPLICATIONS.key(application)
    if not _DNS_LABEL.fullmatch(application):
        yield invalid(path, application, "application name must be a DNS label: lower-case letters, digits and '-'")
    elif application == GATEWAY:
        yield forbidden(path, "reserved: the name of the gateway's own objects")
    elif len(application) > _MAX_APPLICATION:
        yield invalid(
            path,
            application,
            f"must have at most {_MAX_APPLICATION} characters, because the label {APPLICATION_PREFIX}<name> is derived "
            "from it",
        )
    else:
        suffix = "-sidecar" if stack.applications[application].get("engine") == "external" else ""
        longest = f"{stack.names.application(application)}{suffix}"
        if len(longest) > _MAX_NAME:
            yield invalid(
                path, application, f"the names derived from it exceed {_MAX_NAME} characters, such as {longest!r}"
            )
