"""Pod sets: their pod templates, their numbers of pods, and how declared ones differ from inferred ones.

A pod set is a plain object as in the API: ``path`` (see :mod:`.paths`), ``replicas`` (default 1) and annotations for
topology-aware scheduling. :mod:`.inference` infers them for well-known kinds; users declare them for all others.

A pod spec is validated strictly: without this check, a misspelled field would be noticed only by the component's own
controller, after the AppWrapper has consumed quota.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from cfo.api.appwrapper.kinds import RAY_JOB, known_kind
from cfo.api.appwrapper.paths import PathError, object_at
from cfo.api.builtin_types import nearest_field, type_problems
from cfo.api.reading import has_more_values_than
from cfo.runtime import GVK, Object

MAX_POD_SETS: Final = 8
"""An AppWrapper's maximum number of pod sets, without RayJob submitters.

Kueue's limit for Workloads was 8 up to version 0.17; since 0.19 it is 18, which leaves room for the submitters.
"""

MAX_POD_SET_BYTES: Final = 16 << 10
"""The maximum size of all declared pod sets of an AppWrapper, as JSON: its status repeats their paths and annotations.

Without this limit, an AppWrapper that fits into etcd would have a status that does not.
"""

POD_INDEX_LABEL: Final = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
SUB_GROUP_INDEX_LABEL: Final = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
SUB_GROUP_COUNT: Final = "workload.codeflare.dev.appwrapper/tas-sub-group-count"

SUBMITTER_PATH: Final = "template.spec.submitterPodTemplate"
"""The path of the pod template with which KubeRay submits a RayJob."""

_MAX_SHOWN_PROBLEMS: Final = 20

_MAX_VALUES_IN_SPEC: Final = 10_000
"""The maximum number of values in a pod spec, at all levels. More are not checked one by one."""


class PodSetError(ValueError):
    """The pod sets of a component cannot be determined; the message contains the path and the reason."""


def replicas_of(pod_set: Mapping[str, Any]) -> int:
    """Return the number of pods of a pod set."""
    replicas = pod_set.get("replicas")
    return 1 if replicas is None else int(replicas)


def declared_bytes(components: Iterable[Mapping[str, Any]]) -> int:
    """Return the size of the declared pod sets of all ``components``, as JSON without spaces."""
    return sum(len(orjson.dumps(component.get("podSets") or [])) for component in components)


def too_large(size: int) -> str:
    """Return why an AppWrapper whose declared pod sets have ``size`` bytes is rejected."""
    return f"podSets have {size} bytes; at most {MAX_POD_SET_BYTES} are allowed, because the status repeats them"


def is_submitter(gvk: GVK, pod_set: Mapping[str, Any]) -> bool:
    """Return whether ``pod_set``, of a component of kind ``gvk``, is the pod that submits a RayJob.

    It needs quota, but KubeRay creates it only once the RayCluster is ready, and it ends before the cluster does.
    """
    return known_kind(gvk) == RAY_JOB and pod_set.get("path") == SUBMITTER_PATH


def pod_template_at(template: Object, path: str) -> Object:
    """Return the pod template (or Pod) at ``path`` in a component's object, not a copy.

    Raises :class:`PodSetError` if it does not exist, its spec is not a v1.PodSpec, or its labels or annotations are not
    maps of strings.
    """
    try:
        found = object_at(template, path)
    except PathError as error:
        raise PodSetError(str(error)) from error
    spec = found.get("spec")
    if not isinstance(spec, dict):
        raise PodSetError(f"content at {path} does not contain a spec")
    problems = pod_template_problems(spec)
    if problems:
        raise PodSetError(
            f"content at {path}.spec not parseable as a v1.PodSpec: strict decoding error: {problems}"
        )
    metadata = found.get("metadata")
    if not isinstance(metadata, dict | None):
        raise PodSetError(f"content at {path}.metadata is not an object")
    for name in ("labels", "annotations"):
        values = (metadata or {}).get(name)
        if values is not None and not _is_string_map(values):
            raise PodSetError(f"content at {path}.metadata.{name} is not a map of strings")
    return found


def pod_template_problems(spec: Mapping[str, Any]) -> str:
    """Return the reasons why ``spec`` is not a v1.PodSpec, as one bounded string; empty if it is one.

    It ends with the field that the first unknown one seems to mean.
    """
    if has_more_values_than(_MAX_VALUES_IN_SPEC, spec):
        return f"more than {_MAX_VALUES_IN_SPEC} values"
    problems = list(type_problems(spec, "PodSpec"))
    shown = [str(problem) for problem in problems[:_MAX_SHOWN_PROBLEMS]]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    unknown = next((problem for problem in problems if problem.type_name), None)
    meant = nearest_field(unknown) if unknown is not None else ""
    suggestion = f"; did you mean {meant}?" if meant else ""
    return ", ".join(shown) + suggestion


def _is_string_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def pod_set_mismatches(
    declared: Iterable[Mapping[str, Any]],
    inferred: Iterable[Mapping[str, Any]],
    replaced: Container[str] = (),
) -> Iterator[str]:
    """Yield the errors in declared pod sets: duplicate paths, or differences from the inferred pod sets.

    ``replaced`` has the paths of those whose number of pods the inferred one will replace, so that it may differ.
    The pod set of a RayJob's submitter need not be declared, because the Go operator does not infer it.
    """
    declared = list(declared)
    inferred = list(inferred)
    if not declared:
        return
    by_path: dict[str, Mapping[str, Any]] = {}
    for pod_set in declared:
        path = pod_set.get("path") or ""
        if path in by_path:
            yield f"multiple DeclaredPodSets with path '{path}'"
            return
        by_path[path] = pod_set
    if not inferred:
        return
    if SUBMITTER_PATH not in by_path:
        inferred = [pod_set for pod_set in inferred if pod_set["path"] != SUBMITTER_PATH]
    if len(declared) != len(inferred):
        yield f"DeclaredPodSet count {len(declared)} differs from inferred count {len(inferred)}"
        return
    for pod_set in inferred:
        path = pod_set["path"]
        if path not in by_path:
            yield f"PodSet with path '{path}' is missing"
            continue
        count = replicas_of(by_path[path])
        expected = replicas_of(pod_set)
        if count != expected and path not in replaced:
            yield (
                f"replica count {count} differs from inferred count {expected} "
                f"for PodSet at path position '{path}'"
            )
