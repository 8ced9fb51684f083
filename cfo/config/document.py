"""How a configuration document is read, and what is said of what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from cfo.config.model import OperatorConfiguration

__all__ = ["ConfigurationError", "Parsed", "default_document", "document_of", "parse", "single_document"]


class ConfigurationError(ValueError):
    """The configuration cannot be used; the message is one line that names each field at fault."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A configuration, and what its author should hear about it."""

    configuration: OperatorConfiguration
    warnings: list[str] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Reads a configuration document (YAML, so JSON too).

    Raises :class:`ConfigurationError` with one line that names each field at fault, its value and what is allowed.
    """
    warnings: list[str] = []
    try:
        document = _read(text, warnings)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ConfigurationError(f"not YAML: {error.problem or error.context}{where}") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"not YAML: {' '.join(str(error).split())}") from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"must be a mapping of sections, not {_json_type(document)}")
    cleaned = _known(_lift_appwrapper(document, warnings), OperatorConfiguration, "", warnings)
    try:
        return Parsed(OperatorConfiguration.model_validate(cleaned), warnings)
    except ValidationError as error:
        raise ConfigurationError("; ".join(_problems(error))) from None


def _read(text: str, warnings: list[str]) -> Any:
    """What ``text`` says; keys that stand twice in one mapping are warned of, and the last one counts."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        warnings.extend(_repeated(node, "", set()))
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _repeated(node: yaml.Node, path: str, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated(item, f"{path}[{index}]", seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            here = f"{path}.{key.value}".lstrip(".")
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value in lines:
                yield f"{here} stands twice, in lines {lines[key.value]} and {line}; the latter counts"
            if isinstance(key, yaml.ScalarNode):
                lines[key.value] = line
            yield from _repeated(value, here, seen)


def document_of(text: str) -> str:
    """The document in ``text``, which is one itself, or a ConfigMap that holds one.

    Raises :class:`ConfigurationError` for a ConfigMap that does not hold exactly one.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return text  # parse says what is wrong with it
    if isinstance(found, dict) and found.get("kind") == "ConfigMap":
        return single_document(found.get("data") or {})[1]
    return text


def single_document(data: Mapping[str, str]) -> tuple[str, str]:
    """Key and text of the only document in the data of a ConfigMap. Raises :class:`ConfigurationError`."""
    if len(data) != 1:
        found = ", ".join(sorted(data)) or "none"
        raise ConfigurationError(f"data: must hold exactly one key, such as config.yaml; found {found}")
    return next(iter(data.items()))


def default_document() -> str:
    """The document that stands for the defaults, as it is written into a ConfigMap that does not exist yet.

    Rates are left out, since their default is "no limit"; so is what only other sections' defaults decide.
    """
    defaults = OperatorConfiguration().model_dump(mode="json", by_alias=True, exclude_none=True)
    del defaults["clientConnection"]
    return yaml.safe_dump(defaults, sort_keys=True)


def _lift_appwrapper(document: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """Takes what stands under ``appwrapper.Config`` up to ``appwrapper``, whose own settings win, key by key."""
    section_key = _match("appwrapper", document)
    section = document.get(section_key) if section_key else None
    inner_key = _match("Config", section) if isinstance(section, dict) else None
    if section_key is None or inner_key is None or not isinstance(section, dict):
        return document
    inner = section[inner_key]
    outer = {key: value for key, value in section.items() if key != inner_key}
    if inner is None:
        return {**document, section_key: outer}
    if not isinstance(inner, dict):
        raise ConfigurationError(f"appwrapper.Config: must be a mapping, not {_json_type(inner)}")
    return {**document, section_key: _overlay(inner, outer, "appwrapper", warnings)}


def _overlay(below: dict[str, Any], above: dict[str, Any], path: str, warnings: list[str]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        twin = _match(str(key), below)
        if twin is None or value is None:
            merged.setdefault(key, value)
            continue
        here = f"{path}.{key}"
        if isinstance(value, dict) and isinstance(below[twin], dict):
            merged[twin] = _overlay(below[twin], value, here, warnings)
            continue
        if below[twin] is not None and below[twin] != value:
            there = here.replace("appwrapper.", "appwrapper.Config.", 1)
            warnings.append(f"{here} is set, so {there} is ignored")
        merged[twin] = value
    return merged


def _match(name: str, candidates: Mapping[Any, Any]) -> str | None:
    """The key that Go's decoder would take for ``name``: the exact one, else one that differs only in case."""
    if name in candidates:
        return name
    return next((key for key in candidates if isinstance(key, str) and key.lower() == name.lower()), None)


def _known(data: dict[str, Any], model: type[BaseModel], path: str, warnings: list[str]) -> dict[str, Any]:
    """``data`` with the keys spelled as ``model`` has them, unset (null) ones dropped, unknown ones warned about."""
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    cleaned: dict[str, Any] = {}
    for key, value in data.items():
        name = _match(str(key), fields)
        here = f"{path}{key}"
        if name is None:
            nearest = difflib.get_close_matches(str(key), fields, n=1) or _nearest_elsewhere(str(key))
            warnings.append(f"unknown key {here}" + (f" (did you mean {nearest[0]}?)" if nearest else "") + ", ignored")
            continue
        if value is None or (name in cleaned and key != name):
            continue
        cleaned[name] = _cleaned_value(value, fields[name].annotation, here, warnings)
    return cleaned


def _cleaned_value(value: Any, annotation: Any, path: str, warnings: list[str]) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _known(value, annotation, f"{path}.", warnings) if isinstance(value, dict) else value
    element = next(iter(get_args(annotation)[-1:]), None)
    if isinstance(value, dict) and get_origin(annotation) is dict:
        return {key: _cleaned_value(item, element, f"{path}.{key}", warnings) for key, item in value.items()}
    if isinstance(value, list) and get_origin(annotation) is list:
        return [_cleaned_value(item, element, f"{path}[{index}]", warnings) for index, item in enumerate(value)]
    return value


def _nearest_elsewhere(key: str) -> list[str]:
    """A key known in another section: the usual slip is one level too high or too low."""
    return [path for path in _paths(OperatorConfiguration, "") if path.rpartition(".")[2].lower() == key.lower()][:1]


def _paths(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        yield path
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _paths(info.annotation, f"{path}.")


def _problems(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
        value = problem["input"]
        shown = f"{value!r}: "
        if problem["type"] == "value_error":
            message = str(problem["ctx"]["error"])
            shown = "" if isinstance(value, dict | list) else shown
        elif problem["type"] in _WORDS:
            message = _WORDS[problem["type"]]
        else:
            message = problem["msg"].replace("Input should be a valid ", "must be a ").replace("Input should", "must")
        yield f"{path}: {shown}{message}"


_WORDS = {
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "missing": "this key is required",
}


def _json_type(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "a string" if isinstance(value, str) else repr(value)
