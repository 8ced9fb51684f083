"""Parses configuration documents, and reports errors and warnings about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, get_args, get_origin

import msgspec
import yaml

from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.model import OperatorConfiguration
from cfo.config.section import ConfigurationError, Section, section_model, settings_of, value_type
from cfo.runtime.objects import YAML_ERRORS, YAML_LOADER, check_levels
from cfo.runtime.process import printable

_APPWRAPPER = "appwrapper"
_CONFIG_KEY = "Config"
"""The key in the section ``appwrapper`` under which the Go operator has its settings."""

MAX_CHARACTERS: Final = 256 << 10
"""The size of a document (or a ConfigMap with it) that is parsed, which takes seconds for each MiB."""
_MAX_VALUES: Final = 200_000
_MAX_DIGITS: Final = 1000
_MAX_WARNINGS: Final = 100
_MAX_KEY: Final = 100
"""The characters of a key that messages show."""


class ParsedConfiguration(msgspec.Struct, frozen=True):
    """A configuration, warnings about its document, and the document."""

    configuration: OperatorConfiguration
    warnings: list[str] = msgspec.field(default_factory=list)
    text: str = ""


def parse(text: str) -> ParsedConfiguration:
    """Parse a configuration document in YAML or JSON.

    Raises :class:`ConfigurationError` with one line that names each invalid field, its value and the allowed values.
    """
    _check_size(text)
    warnings: list[str] = []
    try:
        document = _read(text, warnings)
    except RecursionError:
        raise ConfigurationError("is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ConfigurationError(
            f"not valid YAML: {error.problem or error.context}{where}"
        ) from None
    except YAML_ERRORS as error:
        raise ConfigurationError(f"not valid YAML: {' '.join(str(error).split())}") from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"must be a mapping of sections, not {_json_type(document)}")
    if _is_manifest(document):
        raise ConfigurationError(_manifest_problem(document))
    findings = _Findings(warnings)
    cleaned = _known_settings(document, OperatorConfiguration, "", findings)
    _merge_appwrapper_config(cleaned, warnings)
    try:
        configuration = OperatorConfiguration.of(cleaned)
    except ConfigurationError as error:
        raise ConfigurationError(*findings.problems, *error.problems) from None
    if findings.problems:
        raise ConfigurationError(*findings.problems)
    if len(warnings) >= _MAX_WARNINGS:
        warnings[_MAX_WARNINGS:] = [f"at most {_MAX_WARNINGS} warnings are shown"]
    return ParsedConfiguration(configuration, warnings, text)


class _Findings(msgspec.Struct, frozen=True):
    """What is reported about the keys of a document."""

    warnings: list[str] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)

    def add_spelling(self, path: str, name: str) -> None:
        """Warn that the last key of ``path``, which names the setting ``name``, is spelled differently."""
        if len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(
                f"key {path} is spelled {name}; it is accepted, because case is ignored as in Go"
            )

    def add_conflict(self, path: str, keys: Iterable[str]) -> None:
        """Report spellings of one setting; Go's decoder would merge their values."""
        if len(self.problems) < _MAX_WARNINGS:
            self.problems.append(
                f"{path}: is set more than once, as {', '.join(keys)}; keep one of them"
            )


def _check_size(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise ConfigurationError(f"is longer than {MAX_CHARACTERS} characters")


def _read(text: str, warnings: list[str]) -> Any:
    """Load ``text``. Duplicate keys in a mapping are reported as warnings, and the last one is used."""
    check_levels(text)
    loader = YAML_LOADER(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count_values(node, {})
        warnings.extend(islice(_duplicate_keys(node, "", set()), _MAX_WARNINGS))
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count_values(node: yaml.Node, counts: dict[int, int]) -> int:
    """Return how many values a node has, those of aliases included. Raises ValueError for too many or a long number."""
    if id(node) not in counts:
        counts[id(node)] = 1  # for an alias inside of what it refers to
        items = node.value if isinstance(node, yaml.CollectionNode) else ()
        nodes = (each for item in items for each in (item if isinstance(item, tuple) else (item,)))
        counts[id(node)] += sum(_count_values(each, counts) for each in nodes)
        if counts[id(node)] > _MAX_VALUES:
            raise ValueError(f"aliases expand to more than {_MAX_VALUES} values")
        if node.tag.endswith(":int") and len(node.value) > _MAX_DIGITS:
            raise ValueError(f"an integer is longer than {_MAX_DIGITS} characters")
    return counts[id(node)]


def _duplicate_keys(node: yaml.Node, path: str, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:  # a YAML alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicate_keys(item, f"{path}[{index}]", seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            here = f"{path}.{printable(name, _MAX_KEY)}".lstrip(".")
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and name in lines:
                yield f"duplicate key {here} on lines {lines[name]} and {line}; the last one is used"
            if isinstance(key, yaml.ScalarNode):
                lines[name] = line
            yield from _duplicate_keys(value, here, seen)


def extract_document(text: str) -> str:
    """Return the configuration document in ``text``, which is the document itself or a ConfigMap that contains it.

    Raises :class:`ConfigurationError` for a text that is too long, and for a ConfigMap that does not contain exactly
    one document.
    """
    _check_size(text)
    try:
        found = _read(text, [])
    except (RecursionError, *YAML_ERRORS):
        return text  # parse() reports the error
    if not isinstance(found, dict) or found.get("kind") != "ConfigMap":
        return text
    data = found.get("data") or {}
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        raise ConfigurationError("data: must be a mapping of strings")
    return single_document(data)[1]


_MANIFEST_FIELDS = ("metadata", "spec", "data", "stringData", "binaryData", "items")


def _is_manifest(document: Mapping[str, Any]) -> bool:
    """Return whether ``document`` is a Kubernetes object; the keys apiVersion and kind alone are unknown keys."""
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


def _merge_appwrapper_config(document: dict[str, Any], warnings: list[str]) -> None:
    """Merge ``appwrapper.Config`` into ``appwrapper``, whose settings take precedence key by key."""
    section = document.get(_APPWRAPPER)
    if not isinstance(section, dict) or _CONFIG_KEY not in section:
        return
    inner = section.pop(_CONFIG_KEY)
    if not isinstance(inner, dict):
        raise ConfigurationError(f"appwrapper.Config: must be a mapping, not {_json_type(inner)}")
    document[_APPWRAPPER] = _merge(inner, section, _APPWRAPPER, warnings)


def _merge(
    base: dict[str, Any], override: dict[str, Any], path: str, warnings: list[str]
) -> dict[str, Any]:
    merged = base | override
    for key in (key for key in override if key in base):
        here = f"{path}.{key}"
        if isinstance(base[key], dict) and isinstance(override[key], dict):
            merged[key] = _merge(base[key], override[key], here, warnings)
        elif base[key] != override[key] and len(warnings) < _MAX_WARNINGS:
            there = here.replace("appwrapper.", "appwrapper.Config.", 1)
            warnings.append(f"{here} is set, so {there} is ignored")
    return merged


def _match(name: str, candidates: Mapping[Any, Any]) -> str | None:
    """Return the key that Go's decoder matches with ``name``: the exact one, else one that differs only in case."""
    if name in candidates:
        return name
    return next(
        (key for key in candidates if isinstance(key, str) and key.lower() == name.lower()), None
    )


def _known_settings(
    data: dict[str, Any], model: type[Section], path: str, findings: _Findings
) -> dict[str, Any]:
    """Return ``data`` with keys spelled as in ``model``; drop null values, and unknown keys with a warning."""
    fields: dict[str, Any] = {key: setting.type for key, setting in settings_of(model).items()}
    if model is AppWrapperConfiguration and path.count(".") == 1:
        fields[_CONFIG_KEY] = model
    cleaned: dict[str, Any] = {}
    spellings: dict[str, list[str]] = {}
    for key, value in data.items():
        name = _match(str(key), fields)
        here = f"{path}{printable(str(key), _MAX_KEY)}"
        if name is None and len(findings.warnings) >= _MAX_WARNINGS:
            continue  # a suggestion takes time
        if name is None:
            import difflib  # 0.2 MB, only for warnings

            nearest = difflib.get_close_matches(str(key), fields, n=1) or [
                _paths_by_key().get(str(key).lower(), "")
            ]
            suggestion = f" (did you mean {nearest[0]}?)" if nearest[0] else ""
            findings.warnings.append(f"unknown key {here}{suggestion}, ignored")
            continue
        spellings.setdefault(name, []).append(key)
        if key != name:
            findings.add_spelling(here, name)
        if value is None:
            continue
        cleaned[name] = _cleaned_value(value, fields[name], here, findings)
    for name, keys in spellings.items():
        if len(keys) > 1:
            findings.add_conflict(f"{path}{name}", keys)
    return cleaned


def _cleaned_value(value: Any, annotation: Any, path: str, findings: _Findings) -> Any:
    model = section_model(annotation)
    if model is not None:
        return (
            _known_settings(value, model, f"{path}.", findings)
            if isinstance(value, dict)
            else value
        )
    kind = value_type(annotation)
    element = next(iter(get_args(kind)[-1:]), None)
    if isinstance(value, dict) and get_origin(kind) is dict:
        return {
            key: _cleaned_value(item, element, f"{path}.{key}", findings)
            for key, item in value.items()
        }
    if isinstance(value, list) and get_origin(kind) is list:
        return [
            _cleaned_value(item, element, f"{path}[{index}]", findings)
            for index, item in enumerate(value)
        ]
    return value


@cache
def _paths_by_key() -> dict[str, str]:
    """Return the first path of each key: keys are often set one level too high or too low."""
    paths = reversed([*_setting_paths(OperatorConfiguration, "")])
    return {path.rpartition(".")[2].lower(): path for path in paths}


def _setting_paths(model: type[Section], prefix: str) -> Iterator[str]:
    for key, setting in settings_of(model).items():
        path = f"{prefix}{key}"
        yield path
        section = section_model(setting.type)
        if section is not None:
            yield from _setting_paths(section, f"{path}.")


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in document.items()
        if value is not None
    }


def _json_type(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "a string" if isinstance(value, str) else repr(value)
