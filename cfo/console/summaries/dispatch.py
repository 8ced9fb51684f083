"""Selects the function that summarizes an object of a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from cfo.api.appwrapper import APPWRAPPER
from cfo.api.flux import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.console.summaries import appwrapper, flux, inferencestack, raycluster
from cfo.console.summaries.reading import MALFORMED, mapping, text
from cfo.console.summaries.related import Related
from cfo.console.summaries.summary import Level, Problem, Summary
from cfo.runtime import GVK, NamespacedName, Object

__all__ = ["KINDS", "summarize"]

_FUNCTIONS: Final[Mapping[GVK, Callable[[Object, Related], Summary]]] = {
    RAY_CLUSTER: raycluster.summarize,
    APPWRAPPER: appwrapper.summarize,
    FLUX_SETUP: flux.summarize_setup,
    FLUX_JOB: flux.summarize_job,
    MINICLUSTER: flux.summarize_minicluster,
    **dict.fromkeys(INFERENCE_STACKS, inferencestack.summarize),
}

KINDS: Final = tuple(_FUNCTIONS)
"""The kinds that have summaries, in the order in which they are shown."""


def summarize(gvk: GVK, obj: Object, related: Related | None = None) -> Summary:
    """Return the summary of ``obj``, of a kind of :data:`KINDS`.

    An object whose fields have unexpected types has a summary that says so; nothing is raised because of its content.
    """
    try:
        return _FUNCTIONS[gvk](obj, related or Related())
    except MALFORMED:
        return _unreadable(gvk, obj)


def _unreadable(gvk: GVK, obj: Object) -> Summary:
    metadata = mapping(obj.get("metadata"))
    return Summary(
        gvk=gvk,
        key=NamespacedName(text(metadata.get("namespace"), 63), text(metadata.get("name"), 253)),
        uid=text(metadata.get("uid"), 63),
        state="",
        level=Level.WARNING,
        ready="",
        created=text(metadata.get("creationTimestamp"), 40),
        problems=(
            Problem(
                "Fields of the object have types that its API does not have",
                "correct the object; kubectl get -o yaml shows it",
            ),
        ),
    )
