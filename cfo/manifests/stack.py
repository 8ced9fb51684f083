"""The versions of the components that this version of the operator works with."""

from __future__ import annotations

from importlib import resources

import yaml


def components() -> list[tuple[str, str]]:
    """Return names and versions of the components, the operator first."""
    return _entries("components")


def platforms() -> list[tuple[str, str]]:
    """Return names and versions of the platforms; the versions are words, such as ``1.34 to 1.37``."""
    return _entries("platforms")


def _entries(section: str) -> list[tuple[str, str]]:
    text = resources.files(__package__).joinpath("stack.yaml").read_text()
    return [(str(each["name"]), str(each["version"])) for each in yaml.safe_load(text)[section]]
