"""Validation of the device requests of claims (dynamic resource allocation)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from envtest.apimachinery.name_rules import dns_label, dns_subdomain, label_value, qualified_name
from envtest.apimachinery.repetition import repeated_positions
from envtest.builtins.admissionregistration import compile_error
from envtest.builtins.go_rendering import internal
from envtest.builtins.scheduling_rules import node_selector_errors

__all__ = [
    "binding_errors",
    "claim_spec_errors",
    "claim_status_errors",
    "configuration_errors",
    "driver_errors",
    "pool_errors",
    "qualified_device_name_errors",
    "selector_errors",
]

_MAX_ITEMS: Final = 32
_MAX_ALTERNATIVES: Final = 8
_MAX_BINDING_CONDITIONS: Final = 4
_MAX_TOLERATIONS: Final = 16
_MAX_PARAMETERS: Final = 10 * 1024
_MAX_EXPRESSION: Final = 10 * 1024
_MAX_DRIVER: Final = 63
_MAX_POOL: Final = 253
_MAX_CONSUMERS: Final = 256
_SOURCES: Final = ("FromClaim", "FromClass")
_ONE_KIND: Final = "exactly one of `exactly` or `firstAvailable` is required"
_ONE_ATTRIBUTE: Final = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, but '
    "multiple fields are set"
)
_UNKNOWN: Final = (
    "must be the name of a request in the claim or the name of a request and a "
    "subrequest separated by '/'"
)
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")


def claim_spec_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a ResourceClaimSpec."""
    devices = spec.get("devices") or {}
    field_path = f"{path}.devices"
    requests = devices.get("requests") or ()
    yield from _named_item_errors(requests, f"{field_path}.requests", _MAX_ITEMS, _request_errors)
    names = set(_request_names(requests))
    for kind in ("constraints", "config"):
        if len(devices.get(kind) or ()) > _MAX_ITEMS:
            yield too_many(f"{field_path}.{kind}", len(devices[kind]), _MAX_ITEMS)
    for position, constraint in enumerate(devices.get("constraints") or ()):
        item_path = f"{field_path}.constraints[{position}]"
        yield from _reference_errors(
            constraint.get("requests") or (), f"{item_path}.requests", names
        )
        attributes = [
            name
            for name in ("matchAttribute", "distinctAttribute")
            if constraint.get(name) is not None
        ]
        if not attributes:
            yield required(item_path, _ONE_ATTRIBUTE)
        for name in attributes[:1]:  # kube-apiserver ignores the second
            yield from _qualified_errors(constraint[name], f"{item_path}.{name}")
    for position, configuration in enumerate(devices.get("config") or ()):
        item_path = f"{field_path}.config[{position}]"
        yield from _reference_errors(
            configuration.get("requests") or (), f"{item_path}.requests", names
        )
        yield from configuration_errors(configuration, item_path)


def _named_item_errors(
    items: Sequence[Mapping[str, Any]],
    path: str,
    limit: int,
    rule: Callable[[Mapping[str, Any], str], Iterator[FieldError]],
) -> Iterator[FieldError]:
    """Yield the errors of a list of at most ``limit`` items, whose names must differ; ``rule`` checks an item."""
    if len(items) > limit:
        yield too_many(path, len(items), limit)
    seen: set[str] = set()
    for position, item in enumerate(items):
        yield from rule(item, f"{path}[{position}]")
        name = item.get("name") or ""
        if name in seen:
            yield duplicate(f"{path}[{position}]", name)
        seen.add(name)


def _request_names(requests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for request in requests:
        yield request.get("name") or ""
        for alternative in request.get("firstAvailable") or ():
            yield f"{request.get('name') or ''}/{alternative.get('name') or ''}"


def _request_errors(request: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    exactly = request.get("exactly")
    alternatives = request.get("firstAvailable") or ()
    yield from _name_errors(request, path)
    if exactly is None and not alternatives:
        yield required(path, _ONE_KIND)
    if exactly is not None and alternatives:
        yield invalid(path, None, f"{_ONE_KIND}, but multiple fields are set")
        return
    if exactly is not None:
        yield from _device_errors(exactly, f"{path}.exactly")
    yield from _named_item_errors(
        alternatives, f"{path}.firstAvailable", _MAX_ALTERNATIVES, _alternative_errors
    )


def _alternative_errors(request: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = request.get("name") or ""
    for problem in dns_label(name):
        yield invalid(f"{path}.name", name, problem)
    yield from _device_errors(request, path)


def _name_errors(request: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = request.get("name") or ""
    for problem in dns_label(name):
        yield invalid(f"{path}.name", name, problem)


def _device_errors(request: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    device_class = request.get("deviceClassName") or ""
    if not device_class:
        yield required(f"{path}.deviceClassName")
    else:
        for problem in dns_subdomain(device_class):
            yield invalid(f"{path}.deviceClassName", device_class, problem)
    yield from selector_errors(request.get("selectors") or (), f"{path}.selectors")
    mode = request.get("allocationMode") or ""
    count = request.get("count") or 0
    if mode == "All":
        if count:
            yield invalid(
                f"{path}.count", count, "must not be specified when allocationMode is 'All'"
            )
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, "must be greater than zero")
    else:
        yield not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    tolerations = request.get("tolerations") or ()
    if len(tolerations) > _MAX_TOLERATIONS:
        yield too_many(f"{path}.tolerations", len(tolerations), _MAX_TOLERATIONS)
    for position, toleration in enumerate(tolerations):
        yield from _toleration_errors(toleration, f"{path}.tolerations[{position}]")


def selector_errors(selectors: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors of the selectors of devices. Only the first 32 expressions are compiled."""
    if len(selectors) > _MAX_ITEMS:
        yield too_many(path, len(selectors), _MAX_ITEMS)
    for position, selector in enumerate(selectors[:_MAX_ITEMS]):
        cel = selector.get("cel")
        if cel is None:
            yield required(f"{path}[{position}].cel")
        else:
            yield from _expression_errors(
                cel.get("expression") or "", f"{path}[{position}].cel.expression"
            )


def _expression_errors(expression: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of an expression over ``device``, whose fields are not type-checked."""
    # lazy: few tests store expressions
    from envtest.schema.cel import (
        CELCompileError,
        compile_expression,
    )
    from envtest.schema.cel_literals import check_literals

    if len(expression.encode()) > _MAX_EXPRESSION:
        yield too_long(path, expression, _MAX_EXPRESSION)
        return
    try:
        program = compile_expression(expression, {"device": "dyn"}, bindings=True)
        check_literals(program, expression, dynamic_matches=True)
    except CELCompileError as error:
        yield compile_error(error, path, expression)
        return
    if program.type_name not in ("bool", "dyn"):
        yield invalid(
            path, expression, f"must evaluate to bool or the unknown type, not {program.type_name}"
        )


def _toleration_errors(toleration: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = toleration.get("key") or ""
    operator = toleration.get("operator") or ""
    effect = toleration.get("effect") or ""
    if name:
        for problem in qualified_name(name):
            yield invalid(f"{path}.key", name, problem)
    if operator == "Exists":
        if toleration.get("value"):
            yield invalid(
                f"{path}.value", toleration["value"], "must be empty for operator `Exists`"
            )
    elif operator == "Equal":
        for problem in label_value(toleration.get("value") or ""):
            yield invalid(f"{path}.value", toleration.get("value") or "", problem)
    elif not operator:
        yield required(f"{path}.operator")
    else:
        yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in _EFFECTS:
        yield not_supported(f"{path}.effect", effect, _EFFECTS)


def _reference_errors(
    references: Sequence[str], path: str, names: set[str]
) -> Iterator[FieldError]:
    if len(references) > _MAX_ITEMS:
        yield too_many(path, len(references), _MAX_ITEMS)
    seen: set[str] = set()
    for position, name in enumerate(references):
        yield from _reference_problems(name, f"{path}[{position}]", names)
        if name in seen:
            yield duplicate(f"{path}[{position}]", name)
        seen.add(name)


def _reference_problems(name: str, path: str, names: set[str]) -> Iterator[FieldError]:
    """Yield the errors in the name of a request, or in the names of a request and an alternative."""
    parts = name.split("/")
    if len(parts) <= 2:
        for part in parts:
            for problem in dns_label(part):
                yield invalid(path, part, problem)
    if name not in names:
        yield invalid(path, name, _UNKNOWN)


def _qualified_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    if "/" not in name:
        yield invalid(
            path, name, "a fully qualified name must be a domain and a name separated by a slash"
        )
    yield from qualified_device_name_errors(name, path)


_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_AN_IDENTIFIER: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_MAX_IDENTIFIER: Final = 32


def qualified_device_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of the name of an attribute or a capacity: an identifier, or a domain and an identifier."""
    domain, slash, identifier = name.rpartition("/")
    if slash and not domain:
        yield invalid(path, "", "the domain must not be empty")
    elif slash:
        for problem in dns_subdomain(domain.lower()):
            yield invalid(path, domain, problem)
    if slash and not identifier:
        yield invalid(path, "", "the name must not be empty")
    else:
        if len(identifier) > _MAX_IDENTIFIER:
            yield too_long(path, identifier, _MAX_IDENTIFIER)
        if not _IDENTIFIER.fullmatch(identifier):
            yield invalid(path, identifier, _NOT_AN_IDENTIFIER)


def binding_errors(device: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the conditions for which the scheduler waits before it binds a pod to a device."""
    conditions = device.get("bindingConditions")
    failures = device.get("bindingFailureConditions")
    yield from _condition_name_errors(conditions or (), f"{path}.bindingConditions")
    yield from _condition_name_errors(failures or (), f"{path}.bindingFailureConditions")
    for position, name in enumerate((failures or ())[:_MAX_BINDING_CONDITIONS]):
        if name in (conditions or ())[:_MAX_BINDING_CONDITIONS]:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(f"{path}.bindingFailureConditions[{position}]", name, text)
    if failures and not conditions:
        text = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(f"{path}.bindingConditions", conditions, text)
    if conditions and not failures:
        text = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(f"{path}.bindingFailureConditions", failures, text)


def _condition_name_errors(names: Sequence[str], path: str) -> Iterator[FieldError]:
    if len(names) > _MAX_BINDING_CONDITIONS:
        yield too_many(path, len(names), _MAX_BINDING_CONDITIONS)
        return
    for position, name in enumerate(names):
        for problem in qualified_name(name):
            yield invalid(f"{path}[{position}]", name, problem)
        if name in names[:position]:
            yield duplicate(f"{path}[{position}]", name)


def configuration_errors(configuration: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors in the configuration for a driver, which only the driver understands."""
    opaque = configuration.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from driver_errors(opaque.get("driver") or "", f"{path}.opaque.driver")
    parameters = opaque.get("parameters")
    if parameters is None:
        yield required(f"{path}.opaque.parameters")
    elif not isinstance(parameters, dict):
        yield invalid(f"{path}.opaque.parameters", "<value omitted>", "must be a valid JSON object")
    elif len(json.dumps(parameters, separators=(",", ":"))) > _MAX_PARAMETERS:
        yield too_long(f"{path}.opaque.parameters", "", _MAX_PARAMETERS)


def driver_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the errors in a driver's name: a DNS subdomain whose case, as for CSI drivers, is ignored."""
    if not name:
        yield required(path)
        return
    if len(name) > _MAX_DRIVER:
        yield too_long(path, name, _MAX_DRIVER)
    for problem in dns_subdomain(name.lower()):
        yield invalid(path, name, problem)


def pool_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the errors in a pool's name: DNS subdomains separated by slashes."""
    if not name:
        yield required(path)
        return
    if len(name) > _MAX_POOL:
        yield too_long(path, name, _MAX_POOL)
    for part in name.split("/"):
        for problem in dns_subdomain(part):
            yield invalid(path, part, problem)


def claim_status_errors(claim: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of the status of a claim: an allocation is reserved for consumers, and does not change."""
    status = claim.get("status") or {}
    status_before = old.get("status") or {}
    allocation = status.get("allocation")
    before = status_before.get("allocation")
    reserved = status.get("reservedFor") or ()
    path = "status.reservedFor"
    for position, consumer in enumerate(reserved):
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                yield required(f"{path}[{position}].{name}")
    repeated = repeated_positions([consumer.get("uid") or "" for consumer in reserved])
    for position in sorted(repeated):
        yield duplicate(f"{path}[{position}]", reserved[position].get("uid") or "")
    if len(reserved) > _MAX_CONSUMERS:
        yield too_many(path, len(reserved), _MAX_CONSUMERS)
    if reserved and allocation is None:
        yield forbidden(path, "may not be specified when `allocated` is not set")
    elif (claim.get("metadata") or {}).get("deletionTimestamp"):
        known = status_before.get("reservedFor") or ()
        if any(consumer not in known for consumer in reserved[:_MAX_CONSUMERS]):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            yield forbidden(path, text)
    if before is not None and allocation is not None:
        if allocation != before:
            yield invalid("status.allocation", Verbatim(internal(allocation)), "field is immutable")
    elif allocation is not None:
        devices = (claim.get("spec") or {}).get("devices") or {}
        yield from _allocation_errors(
            allocation, set(_request_names(devices.get("requests") or ()))
        )


def _allocation_errors(allocation: Mapping[str, Any], names: set[str]) -> Iterator[FieldError]:
    devices = allocation.get("devices") or {}
    path = "status.allocation.devices"
    results = devices.get("results") or ()
    configurations = devices.get("config") or ()
    if len(results) > _MAX_ITEMS:
        yield too_many(f"{path}.results", len(results), _MAX_ITEMS)
    for position, result in enumerate(results[:_MAX_ITEMS]):
        item_path = f"{path}.results[{position}]"
        device = result.get("device") or ""
        yield from _reference_problems(result.get("request") or "", f"{item_path}.request", names)
        yield from driver_errors(result.get("driver") or "", f"{item_path}.driver")
        yield from pool_errors(result.get("pool") or "", f"{item_path}.pool")
        for problem in dns_label(device):
            yield invalid(f"{item_path}.device", device, problem)
        yield from binding_errors(result, item_path)
    if len(configurations) > 2 * _MAX_ITEMS:
        yield too_many(f"{path}.config", len(configurations), 2 * _MAX_ITEMS)
    for position, configuration in enumerate(configurations[: 2 * _MAX_ITEMS]):
        item_path = f"{path}.config[{position}]"
        source = configuration.get("source") or ""
        if not source:
            yield required(f"{item_path}.source")
        elif source not in _SOURCES:
            yield not_supported(f"{item_path}.source", source, _SOURCES)
        yield from _reference_errors(
            configuration.get("requests") or (), f"{item_path}.requests", names
        )
        yield from configuration_errors(configuration, item_path)
    if allocation.get("nodeSelector") is not None:
        yield from node_selector_errors(
            allocation["nodeSelector"], "status.allocation.nodeSelector"
        )
