"""The versions of the components that this version of the operator works with."""

from __future__ import annotations

from importlib import resources

import yaml

__all__ = ["components"]


def components() -> list[tuple[str, str]]:
    """Return names and versions of the components, the operator first."""
    text = resources.files(__package__).joinpath("stack.yaml").read_text()
    return [(str(each["name"]), str(each["version"])) for each in yaml.safe_load(text)]
