"""The validation of a whole stack and of its updates: names that follow from it, and warnings of what will not work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final

from cfo.api.container_resources import fractional_byte_warnings
from cfo.api.inferencestack.engines import TAKEOFF, engine_of
from cfo.api.inferencestack.kinds import (
    OPERATOR_VERSION_LABEL,
    is_operator_version,
    operator_version_of,
)
from cfo.api.inferencestack.names import (
    APPLICATION_PREFIX,
    CHART_NAME,
    GATEWAY,
    GATEWAY_INTERNAL_PORT,
    names_of,
)
from cfo.api.inferencestack.profiles import Profile, newest_profile
from cfo.api.inferencestack.queue import queue_change_errors, queue_name_errors
from cfo.api.inferencestack.resolution import ResolvedStack, resolve
from cfo.api.inferencestack.validation.fields import check_fields, limit_errors
from cfo.api.inferencestack.validation.pods import as_integer, gpu_warnings, volume_warnings
from cfo.api.inferencestack.validation.settings import APPLICATIONS, image_errors, settings_errors
from cfo.runtime import FieldError, Object
from cfo.runtime.objects import is_dns_label, is_label_value
from cfo.runtime.objects.field import MAX_ERRORS, Path, forbidden, invalid

_MAX_NAME: Final = 63
_MODEL_VARIABLE: Final = "TAKEOFF_MODEL_NAME"
_MAX_APPLICATION: Final = _MAX_NAME - len(APPLICATION_PREFIX)
_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_VERSION_PATH: Final = Path("metadata", "labels").key(OPERATOR_VERSION_LABEL)
_NO_VERSION: Final = (
    "not set, so no operator reconciles this stack; set it to the major version of an operator"
)

MAX_WARNINGS: Final = 20
"""The maximum number of warnings that one request returns."""


def _name_errors(stack: ResolvedStack) -> Iterator[FieldError]:
    """Yield the errors in names. The names of the stack itself are not checked if it has none yet."""
    names = stack.names
    override = stack.spec.get("fullnameOverride")
    chart_name = stack.spec.get("nameOverride") or CHART_NAME
    if not is_label_value(chart_name):
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
                path,
                value,
                f"the names derived from it exceed {_MAX_NAME} characters, such as {names.gateway!r}",
            )
    if len(names.stack) > _MAX_NAME:
        yield invalid(
            Path("metadata", "name"), names.stack, f"must have at most {_MAX_NAME} characters"
        )
    yield from _service_account_errors(stack)
    for application in stack.applications:
        yield from _application_name_errors(stack, application)


def _service_account_errors(stack: ResolvedStack) -> Iterator[FieldError]:
    path = Path("spec", "serviceAccount", "name")
    name = stack.service_account.get("name")
    if name and (not _DNS_NAME.fullmatch(name) or len(name) > 253):
        yield invalid(path, name, "must be a DNS name")
    elif name == "default" and stack.service_account.get("create"):
        yield forbidden(
            path,
            "the ServiceAccount default belongs to the namespace; set create to false to use it",
        )


def _application_name_errors(stack: ResolvedStack, application: str) -> Iterator[FieldError]:
    path = APPLICATIONS.key(application)
    if not is_dns_label(application):
        detail = "application name must be a DNS label: lower-case letters, digits and '-'"
        yield invalid(path, application, detail)
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
        engine = engine_of(stack.applications[application])
        longest = f"{stack.names.application(application)}{engine.suffix}"
        if len(longest) > _MAX_NAME:
            yield invalid(
                path,
                application,
                f"the names derived from it exceed {_MAX_NAME} characters, such as {longest!r}",
            )


def _names_model(stack: ResolvedStack, name: str) -> bool:
    """Return whether the stack names a model for the reader of an application, also by a variable or in the template.

    Without one, it has the original's default, which is a dummy.
    """
    template = stack.spec.get("applicationTemplate") or {}
    for section in (template, stack.spec["applications"][name]):
        reader = section.get("readerConfig") or {}
        if reader.get("modelName") or reader.get("model_name"):
            return True
    variables = stack.applications[name].get("env") or ()
    return any(variable.get("name") == _MODEL_VARIABLE for variable in variables)


def _settings_warnings(stack: ResolvedStack) -> Iterator[str]:
    """Yield the warnings about the settings of ``stack``, whose JSON types are correct."""
    yield from _port_warnings(stack)
    gateway_path = Path("spec", "gateway", "resources")
    yield from fractional_byte_warnings(stack.gateway.get("resources"), gateway_path)
    for name, section in stack.applications.items():
        path = APPLICATIONS.key(name)
        yield from gpu_warnings(section, path)
        yield from fractional_byte_warnings(section.get("resources"), path.child("resources"))
        sidecar = section.get("sidecar") or {}
        yield from fractional_byte_warnings(
            sidecar.get("resources"), path.child("sidecar", "resources")
        )
        if engine_of(section) is TAKEOFF and not _names_model(stack, name):
            used = (section.get("readerConfig") or {}).get("modelName") or "no model"
            yield f"{path}.readerConfig.modelName: not set, so the application serves {used}"
        if (section.get("readerConfig") or {}).get("accessToken"):
            yield (
                f"{path}.readerConfig.accessToken: the token is in clear in this stack and in a ConfigMap; use "
                "accessTokenSecretRef"
            )
        scaling = section.get("scaling") or {}
        if "metricTarget" in (scaling.get("spec") or {}):
            yield f"{path}.scaling.spec.metricTarget: has no effect; use scaling.metricTarget"
        yield from volume_warnings(section, path)


def _port_warnings(stack: ResolvedStack) -> Iterator[str]:
    config = stack.gateway.get("config") or {}
    port = as_integer(config.get("internalPort", GATEWAY_INTERNAL_PORT))
    service_ports = (stack.gateway.get("service") or {}).get("ports") or ()
    is_forwarded = any(
        service_port.get("port") == GATEWAY_INTERNAL_PORT and "targetPort" in service_port
        for service_port in service_ports
    )
    if port != GATEWAY_INTERNAL_PORT and not is_forwarded:
        yield (
            f"spec.gateway.config.internalPort: applications and KEDA use port {GATEWAY_INTERNAL_PORT} of the "
            "gateway's Service, which has no targetPort"
        )


@dataclass(frozen=True, slots=True)
class StackValidation:
    """The errors and warnings of a stack, in the order in which they were found.

    There is at most one error more than :class:`~cfo.runtime.FieldErrors` reports. ``stack`` is ``None`` if the JSON
    types are not correct; ``old`` is the stack before an update, under the same condition.
    """

    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()
    stack: ResolvedStack | None = None
    old: ResolvedStack | None = None


def validate(stack: Object, profile: Profile | None, operator_version: str = "") -> StackValidation:
    """Validate ``stack`` with the defaults of ``profile``. The work is bounded by :func:`.limit_errors`.

    Without a profile, because it is not known which operator will reconcile the stack, missing images are no errors.
    ``operator_version``: that of an operator that runs, which is named if the stack has none, or a malformed one.
    """
    errors: list[FieldError] = []
    warnings: list[str] = []
    version = operator_version_of(stack)
    example = f", such as {operator_version}, which runs" if operator_version else ""
    if not version:
        warnings.append(f"{_VERSION_PATH}: {_NO_VERSION}{example}")
    elif not is_operator_version(version):
        detail = f"operatorVersion must be of the form v<major>{example}"
        errors.append(invalid(_VERSION_PATH, version, detail))
    errors += queue_name_errors(stack)
    exceeded = limit_errors(stack)
    if exceeded:
        return StackValidation((*errors, *exceeded), tuple(warnings))
    spec: Mapping[str, Any] = stack.get("spec") or {}
    report = check_fields(spec)
    errors += report.errors
    warnings += report.warnings
    resolved = None
    if report.is_typed:
        resolved = resolve(stack, profile or newest_profile(""))
        found = chain(_name_errors(resolved), settings_errors(resolved))
        if profile is not None:
            found = chain(found, image_errors(resolved))
        errors += islice(found, MAX_ERRORS + 1)
        warnings += islice(_settings_warnings(resolved), MAX_WARNINGS + 1)
    return StackValidation(tuple(errors[: MAX_ERRORS + 1]), _limited(warnings), resolved)


def validate_update(
    old: Object, new: Object, profile: Profile | None, operator_version: str = ""
) -> StackValidation:
    """Validate the update of ``old`` to ``new``: an error that ``old`` already has becomes a warning.

    In addition, this rejects what cannot be changed: the selector of a Deployment that keeps its name, and the queue of
    a stack whose pods can run.
    """
    after = validate(new, profile, operator_version)
    before = validate(old, profile, operator_version)
    queue_errors = tuple(queue_change_errors(old, new))
    if not after.errors:
        changed = queue_errors
        if before.stack is not None:
            changed = (*_changed_selector(old, new), *queue_errors)
        return replace(after, errors=changed, old=before.stack)
    known = {str(error) for error in before.errors}
    kept = [str(error) for error in after.errors if str(error) in known]
    fresh = tuple(error for error in after.errors if str(error) not in known)
    fresh += queue_errors
    warnings = _limited([*kept, *after.warnings])
    return replace(after, errors=fresh, warnings=warnings, old=before.stack)


def _changed_selector(old: Object, new: Object) -> Iterator[FieldError]:
    before = names_of(old)
    after = names_of(new)
    if before.fullname == after.fullname and before.name_label != after.name_label:
        yield forbidden(
            Path("spec", "nameOverride"),
            "changes the selectors of the Deployments, which are immutable; change fullnameOverride as well",
        )


def _limited(warnings: list[str]) -> tuple[str, ...]:
    shown = warnings[:MAX_WARNINGS]
    if len(warnings) > MAX_WARNINGS:
        shown.append("further warnings are not shown")
    return tuple(shown)
