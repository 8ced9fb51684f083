"""The versions of the components that this operator is made to work with."""

from __future__ import annotations

from importlib import resources

import yaml

__all__ = ["components"]


def components() -> list[tuple[str, str]]:
    """Names and versions, the operator first."""
    text = resources.files(__package__).joinpath("stack.yaml").read_text()
    return [(str(each["name"]), str(each["version"])) for each in yaml.safe_load(text)]
