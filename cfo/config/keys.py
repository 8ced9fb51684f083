"""Matches the keys of a document with the settings of the models, as Go's JSON decoder does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args, get_origin

from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.loading import MAX_KEY, MAX_WARNINGS
from cfo.config.model import OperatorConfiguration
from cfo.config.section import Section, section_model, settings_of, value_type
from cfo.runtime.process import printable

APPWRAPPER_SETTINGS = "Config"
"""The key in the section ``appwrapper`` under which the Go operator has its settings."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What is reported about the keys of a document."""

    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add_unknown(self, path: str, key: str, known: Iterable[str]) -> None:
        """Warn that no setting has the name ``key``, and suggest the nearest of the ``known`` names."""
        if len(self.warnings) > MAX_WARNINGS:  # a suggestion takes time
            return
        import difflib  # 0.2 MB, only for warnings

        nearest = difflib.get_close_matches(key, known, n=1)
        suggested = nearest[0] if nearest else _paths_by_key().get(key.lower())
        suggestion = f" (did you mean {suggested}?)" if suggested else ""
        self.warnings.append(f"unknown key {path}{suggestion}, ignored")

    def add_spelling(self, path: str, name: str) -> None:
        """Warn that the last key of ``path``, which names the setting ``name``, is spelled differently."""
        if len(self.warnings) <= MAX_WARNINGS:
            self.warnings.append(
                f"key {path} is spelled {name}; it is accepted, because case is ignored as in Go"
            )

    def add_conflict(self, path: str, keys: Iterable[str]) -> None:
        """Report spellings of one setting; Go's decoder would merge their values."""
        if len(self.problems) < MAX_WARNINGS:
            self.problems.append(
                f"{path}: is set more than once, as {', '.join(keys)}; keep one of them"
            )


def known_settings(data: dict[Any, Any], findings: Findings) -> dict[str, Any]:
    """Return a document with keys spelled as in the models, without null values and unknown keys."""
    return _known_settings(data, OperatorConfiguration, "", findings)


def _known_settings(
    data: dict[Any, Any], model: type[Section], path: str, findings: Findings
) -> dict[str, Any]:
    fields: dict[str, Any] = {key: setting.type for key, setting in settings_of(model).items()}
    if model is AppWrapperConfiguration and path.count(".") == 1:
        fields[APPWRAPPER_SETTINGS] = model
    cleaned: dict[str, Any] = {}
    spellings: dict[str, list[str]] = {}
    for key, value in data.items():
        name = _match(str(key), fields)
        here = f"{path}{printable(str(key), MAX_KEY)}"
        if name is None:
            findings.add_unknown(here, str(key), fields)
            continue
        spellings.setdefault(name, []).append(key)
        if key != name:
            findings.add_spelling(here, name)
        if value is not None:
            cleaned[name] = _known_parts(value, fields[name], here, findings)
    for name, keys in spellings.items():
        if len(keys) > 1:
            findings.add_conflict(f"{path}{name}", keys)
    return dict(model.normalized(cleaned))


def _known_parts(value: Any, annotation: Any, path: str, findings: Findings) -> Any:
    """Return the value of a setting with :func:`known_settings` of the sections in it."""
    kind = value_type(annotation)
    model = section_model(kind)
    if isinstance(value, dict) and model is not None:
        return _known_settings(value, model, f"{path}.", findings)
    if isinstance(value, dict) and get_origin(kind) is dict:
        element = get_args(kind)[1]
        return {
            key: _known_parts(item, element, f"{path}.{key}", findings)
            for key, item in value.items()
        }
    if isinstance(value, list) and get_origin(kind) is list:
        element = get_args(kind)[0]
        return [
            _known_parts(item, element, f"{path}[{index}]", findings)
            for index, item in enumerate(value)
        ]
    return value


def _match(name: str, candidates: Mapping[str, Any]) -> str | None:
    """Return the key that Go's decoder matches with ``name``: the exact one, else one that differs only in case."""
    if name in candidates:
        return name
    return next((key for key in candidates if key.lower() == name.lower()), None)


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
