"""Parses configuration documents, and reports errors and warnings about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from cfo.config.keys import APPWRAPPER_SETTINGS, KeyFindings, known_settings
from cfo.config.loading import MAX_WARNINGS, check_size, load
from cfo.config.model import OperatorConfiguration
from cfo.config.section import ConfigurationError

_APPWRAPPER = "appwrapper"
_GO_SETTINGS = f"{_APPWRAPPER}.{APPWRAPPER_SETTINGS}"


@dataclass(frozen=True, slots=True)
class ParsedConfiguration:
    """A configuration, warnings about its document, and the document."""

    configuration: OperatorConfiguration
    warnings: list[str] = field(default_factory=list)
    text: str = ""


def parse(text: str) -> ParsedConfiguration:
    """Parse a configuration document in YAML or JSON.

    Raises :class:`ConfigurationError` with one line that names each invalid field, its value and the allowed values.
    """
    document, warnings = load(text)
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"must be a mapping of sections, not {_describe(document)}")
    if _is_manifest(document):
        raise ConfigurationError(_manifest_problem(document))
    findings = KeyFindings(warnings)
    settings = known_settings(document, findings)
    _merge_appwrapper_config(settings, findings.warnings)
    problems = list(findings.problems)
    configuration = OperatorConfiguration()
    try:
        configuration = OperatorConfiguration.from_document(settings)
    except ConfigurationError as error:
        problems += error.problems
    if problems:
        raise ConfigurationError(*problems, warnings=_shown(findings.warnings))
    _warn_about_disabled_queues(configuration, findings.warnings)
    _warn_about_undetected_namespaces(configuration, findings.warnings)
    _warn_about_denied_egress(configuration, findings.warnings)
    return ParsedConfiguration(configuration, _shown(findings.warnings), text)


def _shown(warnings: list[str]) -> list[str]:
    shown = warnings[:MAX_WARNINGS]
    if len(warnings) > MAX_WARNINGS:
        shown.append(f"at most {MAX_WARNINGS} warnings are shown")
    return shown


def extract_document(text: str) -> str:
    """Return the configuration document in ``text``, which is the document itself or a ConfigMap that contains it.

    Raises :class:`ConfigurationError` for a text that is too long, and for a ConfigMap that does not contain exactly
    one document.
    """
    check_size(text)
    try:
        found, _ = load(text)
    except ConfigurationError:
        return text  # parse() reports the error
    if not isinstance(found, dict) or found.get("kind") != "ConfigMap":
        return text
    data = found.get("data") or {}
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        raise ConfigurationError("data: must be a mapping of strings")
    _, document = single_document(data)
    return document


_MANIFEST_FIELDS = ("metadata", "spec", "data", "stringData", "binaryData", "items")


def _is_manifest(document: Mapping[str, Any]) -> bool:
    """Return whether ``document`` is a Kubernetes object.

    A document that has only apiVersion and kind is none; these keys are reported as unknown.
    """
    return isinstance(document.get("kind"), str) and any(
        name in document for name in _MANIFEST_FIELDS
    )


def _manifest_problem(document: Mapping[str, Any]) -> str:
    kind = document["kind"]
    hint = "the document is the value of the only key in the data of a ConfigMap"
    if kind == "ConfigMap":
        return f"is a whole ConfigMap inside of another document; {hint}"
    if kind == "List":
        return "is a list of objects, not a configuration document; give one ConfigMap"
    return f"is a manifest of kind {kind}, not a configuration document; {hint}"


def single_document(data: Mapping[str, str]) -> tuple[str, str]:
    """Return key and value of the only entry in the data of a ConfigMap.

    Raises :class:`ConfigurationError` if there is not exactly one entry.
    """
    if len(data) != 1:
        found = ", ".join(sorted(data)) or "none"
        raise ConfigurationError(
            f"data: must contain exactly one key, such as config.yaml; found {found}"
        )
    return next(iter(data.items()))


def default_document() -> str:
    """Return a document with the defaults, which is written into a ConfigMap that does not exist yet.

    Settings whose default is "unset" are left out, and so is ``clientConnection``, because its default is "no limit".
    """
    defaults = _without_none(OperatorConfiguration().to_document())
    del defaults["clientConnection"]
    return yaml.safe_dump(defaults, sort_keys=True)


def _warn_about_disabled_queues(configuration: OperatorConfiguration, warnings: list[str]) -> None:
    """Warn of settings for Kueue that have no effect, because AppWrappers are disabled."""
    appwrapper = configuration.appwrapper
    if appwrapper.enabled:
        return
    settings = {
        "kueueIntegration": appwrapper.kueue_integration,
        "slackQueueName": bool(appwrapper.slack_queue_name),
    }
    for name, is_set in settings.items():
        if is_set:
            warnings.append(
                f"{_APPWRAPPER}.{name} has no effect, because {_APPWRAPPER}.enabled is false"
            )


def _warn_about_undetected_namespaces(
    configuration: OperatorConfiguration, warnings: list[str]
) -> None:
    """Warn that KubeRay may not reach the heads: its namespace is detected only by an operator of all namespaces."""
    kuberay = configuration.kuberay
    if configuration.watch_namespaces and kuberay.enabled and not kuberay.operator_namespaces:
        warnings.append(
            "kuberay.operatorNamespaces is not set: with watchNamespaces the namespace of KubeRay is not detected, and "
            "NetworkPolicies admit it to the heads only from its usual namespace"
        )


def _warn_about_denied_egress(configuration: OperatorConfiguration, warnings: list[str]) -> None:
    """Warn that NetworkPolicies keep pods of RayClusters from what settings let them connect to."""
    kuberay = configuration.kuberay
    egress = kuberay.network_policy.egress
    has_addresses = any(destination.cidrs for destination in egress.destinations)
    if not kuberay.enabled or not egress.restrict or has_addresses:
        return
    needs_api_server = {
        "kuberay.authentication": kuberay.authentication.enabled,
        "kuberay.ca.issuer": kuberay.ca.issuer == "certificateSigningRequest",
    }
    settings = [name for name, needs in needs_api_server.items() if needs]
    if settings and not egress.api_server_cidrs:
        warnings.append(
            f"kuberay.networkPolicy.egress.apiServerCIDRs is empty, but pods must reach the API server because of "
            f"{' and '.join(settings)}: without it, restricted egress keeps dashboards or pods from starting"
        )
    if kuberay.authentication.oidc is not None:
        warnings.append(
            "kuberay.networkPolicy.egress.destinations has no cidrs, but proxies must reach the issuer of "
            "kuberay.authentication.oidc"
        )


def _merge_appwrapper_config(document: dict[str, Any], warnings: list[str]) -> None:
    """Merge ``appwrapper.Config`` into ``appwrapper``, whose settings take precedence key by key."""
    section = document.get(_APPWRAPPER)
    if not isinstance(section, dict) or APPWRAPPER_SETTINGS not in section:
        return
    inner = section.pop(APPWRAPPER_SETTINGS)
    if not isinstance(inner, dict):
        raise ConfigurationError(f"{_GO_SETTINGS}: must be a mapping, not {_describe(inner)}")
    document[_APPWRAPPER] = _merge(inner, section, "", warnings)


def _merge(
    base: dict[str, Any], override: dict[str, Any], path: str, warnings: list[str]
) -> dict[str, Any]:
    """Return ``base`` with the values of ``override``, and warn of each that differs; ``path`` ends with a dot."""
    merged = base | override
    for key in override:
        if key not in base:
            continue
        here = f"{path}{key}"
        if isinstance(base[key], dict) and isinstance(override[key], dict):
            merged[key] = _merge(base[key], override[key], f"{here}.", warnings)
        elif base[key] != override[key] and len(warnings) <= MAX_WARNINGS:
            warnings.append(f"{_APPWRAPPER}.{here} is set, so {_GO_SETTINGS}.{here} is ignored")
    return merged


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in document.items()
        if value is not None
    }


def _describe(value: object) -> str:
    """Return the type of a container or string, and a value of any other type itself."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "a string" if isinstance(value, str) else repr(value)
