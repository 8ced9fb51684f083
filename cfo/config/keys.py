"""Matches the keys of a configuration document with the settings of the models, as Go's JSON decoder does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.durations import Duration, is_shorter_than_a_second
from cfo.config.loading import MAX_KEY, MAX_WARNINGS
from cfo.config.model import OperatorConfiguration
from cfo.config.section import Section, section_model, settings_of, value_type
from cfo.runtime.process import printable

APPWRAPPER_SETTINGS = "Config"
"""The key in the section ``appwrapper`` under which the Go operator has its settings."""


_KUEUE_SETTINGS_OF_GO = ("enablekueueintegrations", "kueuejobreconciller")
"""The settings of the Go operator for its own integration with Kueue, in lower case."""

_KUEUE_NOTE = (
    "Kueue's own integration queues AppWrappers, unless appwrapper.kueueIntegration is true"
)


class KeyFindings(msgspec.Struct):
    """What is reported about the keys of a document: warnings, and problems, which make it invalid.

    At most :data:`.MAX_WARNINGS` problems are collected, and one warning more, which proves that there are more.
    """

    warnings: list[str]
    problems: list[str] = []

    def add_unknown(self, path: str, key: str, known: Iterable[str]) -> None:
        """Warn that no setting has the name ``key``, and suggest the nearest of the ``known`` names."""
        if len(self.warnings) > MAX_WARNINGS:  # before the suggestion, which takes time
            return
        if key.lower() in _KUEUE_SETTINGS_OF_GO:
            self.warnings.append(f"key {path} of the Go operator is ignored: {_KUEUE_NOTE}")
            return
        import difflib  # 0.2 MB, only for warnings

        nearest = difflib.get_close_matches(key, known, n=1)
        suggested = nearest[0] if nearest else _first_path_by_key().get(key.lower())
        suggestion = f" (did you mean {suggested}?)" if suggested else ""
        self.warnings.append(f"unknown key {path}{suggestion}, ignored")

    def add_spelling(self, path: str, name: str) -> None:
        """Warn that the last key of ``path`` means the setting ``name``, from which it differs in case."""
        if len(self.warnings) <= MAX_WARNINGS:
            self.warnings.append(
                f"key {path} is spelled {name}; it is accepted, because case is ignored as in Go"
            )

    def add_short_duration(self, path: str, value: object, *, is_unset: bool) -> None:
        """Warn that the duration ``value`` is below one second; as an integer, it probably lacks its unit.

        ``is_unset``: the section reads it as a setting without a value.
        """
        if len(self.warnings) > MAX_WARNINGS:
            return
        warning = f"{path}: {printable(repr(value), MAX_KEY)} is shorter than 1s"
        if isinstance(value, int):
            warning += f", because integers are nanoseconds; for seconds, write {value}s"
        if is_unset:
            warning += "; it counts as 0, so the default is used"
        self.warnings.append(warning)

    def add_conflict(self, path: str, keys: Iterable[str]) -> None:
        """Report several spellings of one setting as a problem: Go's decoder would merge their values."""
        if len(self.problems) < MAX_WARNINGS:
            self.problems.append(
                f"{path}: is set more than once, as {', '.join(keys)}; keep one of them"
            )


def known_settings(data: dict[Any, Any], findings: KeyFindings) -> dict[str, Any]:
    """Return a document with keys spelled as in the models, without null values and unknown keys."""
    return _known_settings(data, OperatorConfiguration, "", findings)


def _known_settings(
    data: dict[Any, Any], model: type[Section], prefix: str, findings: KeyFindings
) -> dict[str, Any]:
    """Return the settings of one section; ``prefix`` is its path with a dot at the end, or empty."""
    types: dict[str, Any] = {key: setting.type for key, setting in settings_of(model).items()}
    is_top_level = prefix.count(".") == 1
    if model is AppWrapperConfiguration and is_top_level:  # appwrapper.Config itself has no Config
        types[APPWRAPPER_SETTINGS] = model
    cleaned: dict[str, Any] = {}
    spellings: dict[str, list[str]] = {}
    for yaml_key, value in data.items():
        key = str(yaml_key)
        path = f"{prefix}{printable(key, MAX_KEY)}"
        name = _match(key, types)
        if name is None:
            findings.add_unknown(path, key, types)
            continue
        spellings.setdefault(name, []).append(key)
        if key != name:
            findings.add_spelling(path, name)
        if value is not None:
            cleaned[name] = _clean_value(value, types[name], path, findings)
            if _is_duration(types[name]) and is_shorter_than_a_second(value):
                is_unset = name not in model.normalized({name: value})
                findings.add_short_duration(path, value, is_unset=is_unset)
    for name, keys in spellings.items():
        if len(keys) > 1:
            findings.add_conflict(f"{prefix}{name}", keys)
    return dict(model.normalized(cleaned))


def _clean_value(value: Any, annotation: Any, path: str, findings: KeyFindings) -> Any:
    """Return the value of a setting; if it contains sections, they have only known settings."""
    kind = value_type(annotation)
    model = section_model(kind)
    if isinstance(value, dict) and model is not None:
        return _known_settings(value, model, f"{path}.", findings)
    if isinstance(value, dict) and get_origin(kind) is dict:
        item_type = get_args(kind)[1]
        return {
            key: _clean_value(item, item_type, f"{path}.{printable(str(key), MAX_KEY)}", findings)
            for key, item in value.items()
        }
    if isinstance(value, list) and get_origin(kind) is list:
        item_type = get_args(kind)[0]
        return [
            _clean_value(item, item_type, f"{path}[{index}]", findings)
            for index, item in enumerate(value)
        ]
    return value


def _is_duration(annotation: Any) -> bool:
    kind = value_type(annotation)
    return isinstance(kind, type) and issubclass(kind, Duration)


def _match(name: str, candidates: Mapping[str, Any]) -> str | None:
    """Return the key that Go's decoder matches with ``name``: the exact one, else one that differs only in case."""
    if name in candidates:
        return name
    for candidate in candidates:
        if candidate.lower() == name.lower():
            return candidate
    return None


@cache
def _first_path_by_key() -> dict[str, str]:
    """Return the first path at which each key (in lower case) is a setting.

    It is suggested for a key that is at the wrong level, mostly one too high or too low.
    """
    found: dict[str, str] = {}
    for path in _setting_paths(OperatorConfiguration, ""):
        key = path.rpartition(".")[2].lower()
        found.setdefault(key, path)
    return found


def _setting_paths(model: type[Section], prefix: str) -> Iterator[str]:
    """Yield the paths of all settings of ``model``; the path of a section is followed by those of its settings."""
    for key, setting in settings_of(model).items():
        path = f"{prefix}{key}"
        yield path
        section = section_model(setting.type)
        if section is not None:
            yield from _setting_paths(section, f"{path}.")
