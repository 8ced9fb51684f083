"""What the arguments of the operator's container say, such as which ConfigMap it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from cfo.api.reading import path
from cfo.config.document import ParsedConfiguration, default_document, parse
from cfo.runtime import Object
from cfo.runtime.objects import is_host_name
from cfo.version import CONFIG_MAP_NAME


def manager_container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first container of a pod or pod template; empty if there is none."""
    containers = (template.get("spec") or {}).get("containers") or [{}]
    container: Mapping[str, Any] = containers[0]
    return container


def option(deployment: Object | None, name: str) -> str | None:
    """Return the value of the option ``name`` of the operator's container; ``None`` if it does not have it.

    The entry point of the image also accepts one dash, as the Go operator does. The last one counts.
    """
    found: str | None = None
    for word, following in pairwise([*_words(deployment), ""]):
        flag, equals, value = word.partition("=")
        if flag in (name, name.removeprefix("-")):
            found = value if equals else following
    return found


def _words(deployment: Object | None) -> Sequence[str]:
    """Return the command of the operator's container, with its arguments."""
    template = path(deployment or {}, "spec", "template") or {}
    container = manager_container(template)
    return [
        str(word) for word in [*(container.get("command") or ()), *(container.get("args") or ())]
    ]


def configuration_name(deployment: Object | None) -> str:
    """Return the name of the ConfigMap with the configuration of ``deployment``: ``--config``, or the default.

    A name that no object can have, with which the operator does not start, counts as the default.
    """
    name = option(deployment, "--config")
    if name is not None and is_host_name(name):  # names of objects have this form
        return name
    return CONFIG_MAP_NAME


def default_config(deployment: Object | None) -> str | None:
    """Return the document with which ``deployment`` creates its ConfigMap; ``None`` for that with the defaults."""
    return option(deployment, "--default-config")


def first_document(deployment: Object | None) -> str:
    """Return the document with which the operator of ``deployment`` creates its ConfigMap."""
    document = default_config(deployment)
    return default_document() if document is None else document


def first_configuration(deployment: Object | None) -> ParsedConfiguration:
    """Return the configuration of :func:`first_document`. Raises :class:`.ConfigurationError`."""
    return parse(first_document(deployment))
