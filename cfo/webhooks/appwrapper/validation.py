"""Validation of AppWrappers. Pure functions that return all errors.

Fields and messages equal the Go operator's, except that a denial never contains whole templates, because the actual
error would be hard to find.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

import orjson

from cfo.api.appwrapper.inference import (
    infer_pod_sets,
    pod_sets_of,
    undercounted_pod_sets,
    unlimited_worker_groups,
)
from cfo.api.appwrapper.names import (
    APPWRAPPER,
    QUOTA_RESERVED,
    USER_ID_LABEL,
    USER_LABEL,
    is_idle,
)
from cfo.api.appwrapper.paths import value_or_none
from cfo.api.appwrapper.podsets import (
    MAX_POD_SET_BYTES,
    MAX_POD_SETS,
    PodSetError,
    declared_bytes,
    is_submitter,
    pod_set_mismatches,
    pod_template_at,
    replicas_of,
    too_large,
)
from cfo.api.appwrapper.quota import (
    check_added_pods,
    negative_request_errors,
    uncounted_additions,
)
from cfo.api.appwrapper.submitters import submitter_errors
from cfo.api.appwrapper.train_jobs import queue_errors
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.raycluster.spec_warnings import request_warnings
from cfo.api.reading import MAX_SPEC_VALUES, elements, has_more_values_than, mapping
from cfo.api.reserved_hosts import generated_host_errors, reserved_host_errors
from cfo.runtime import GVK, FieldError, Object, gvk_of, labels_of, name_of
from cfo.runtime.objects import is_dns_label
from cfo.runtime.objects.field import (
    MAX_ERRORS,
    OMIT,
    Path,
    Verbatim,
    duplicate,
    forbidden,
    go_json,
    internal,
    invalid,
    required,
    too_long,
    too_many,
    type_invalid,
)
from cfo.webhooks.access import Access
from cfo.webhooks.appwrapper.component_fields import component_warnings
from cfo.webhooks.shapes import Shape, mismatches

COMPONENTS: Final = Path("spec", "components")

MAX_COMPONENTS: Final = 100
"""The maximum number of components. For each kind in them, the API server is asked for permission; for each component,
the controller reads an object."""

_MAX_REQUEST_WARNINGS: Final = 10
_MAX_UNCOUNTED_WARNINGS: Final = 10

_STRING: Final = Shape(str)
_OBJECT: Final = Shape(dict)
_METADATA: Final = {
    "name": _STRING,
    "generateName": _STRING,
    "namespace": _STRING,
    "labels": _OBJECT,
    "annotations": _OBJECT,
    "ownerReferences": Shape(list, items=Shape(dict, required=True)),
}
_POD_SET: Final = Shape(
    dict, {"path": _STRING, "annotations": _OBJECT, "replicas": Shape(int)}, required=True
)
_COMPONENT: Final = Shape(
    dict,
    {
        # templates that are no objects are rejected with the other errors in them
        "template": Shape(object, {"metadata": Shape(object, _METADATA)}),
        "podSets": Shape(list, items=_POD_SET),
    },
    required=True,
)
_SPEC: Final = Shape(dict, {"components": Shape(list, items=_COMPONENT)})
_TYPES: Final[Mapping[type, str]] = {dict: "object", list: "array", str: "string", int: "integer"}

_POD_SET_FIELDS: Final = ("replicas", "path", "annotations")
"""The fields of a pod set, in the order of the Go type."""

MAX_LABEL_VALUE: Final = 63
_MAX_NAME: Final = 253

_NAME: Final = Path("metadata", "name")
_LABELS: Final = Path("metadata", "labels")
_INFOS: Final = "podSetInfos"
"""The field of a component with the changes to its pod templates that the admission by a queue requires."""

_BUILTIN_GROUPS: Final = ".k8s.io"
"""How the groups of Kubernetes' own kinds with a dot end; of these, only well-known ones create pods."""

_IMMUTABLE: Final = "attempt to change immutable field"
"""The Go operator's words."""

_NO_POD_SPECS: Final = "components contains no podspecs"
"""The Go operator's words."""

_MAX_NAMED: Final = 3
"""How many components, and how many changed fields, a message names at most."""

_MAX_COMPARED: Final = 1000
"""Of objects and lists with more fields, no field is named that differs: that takes a microsecond for each."""

_MAX_DEPTH: Final = 20
_MAX_KEY: Final = 63
"""The depth and the longest key to which the path of a changed field is determined."""

_FIELD_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")

_REQUIRED_VERBS: Final = frozenset({"create", "delete", "get"})
_MAX_REPLICAS: Final = 2**31 - 1


def count_errors(appwrapper: Object) -> list[FieldError]:
    """Return an error if ``appwrapper`` has more components, declared pod sets or values than are allowed.

    To be called before any other check of a new AppWrapper, whose work these counts bound.
    """
    components = elements(mapping(appwrapper.get("spec")).get("components"))
    if len(components) > MAX_COMPONENTS:
        return [too_many(COMPONENTS, len(components), MAX_COMPONENTS)]
    declared = 0
    for component in components:
        declared += len(elements(mapping(component).get("podSets")))
    if declared > MAX_POD_SETS:
        return [too_many_pod_sets(declared)]
    if has_more_values_than(MAX_SPEC_VALUES, mapping(appwrapper.get("spec"))):
        message = f"must have at most {MAX_SPEC_VALUES} values, at all levels"
        return [invalid(COMPONENTS, OMIT, message)]
    return []


def json_type_errors(appwrapper: Object) -> list[FieldError]:
    """Return the errors in the JSON types of ``appwrapper``. Of the templates, only the metadata is read."""
    wrong = islice(mismatches(appwrapper.get("spec"), _SPEC), MAX_ERRORS + 1)
    return [
        type_invalid(f"spec{path}", OMIT, f"must be of type {_TYPES[expected]}")
        for path, _, expected in wrong
    ]


def too_many_pod_sets(count: int) -> FieldError:
    """Return the error for an AppWrapper with ``count`` pod sets."""
    return invalid(
        COMPONENTS,
        OMIT,
        f"components contains {count} podspecs; at most {MAX_POD_SETS} are allowed",
    )


def component_kinds(appwrapper: Object) -> set[GVK]:
    """Return the wrapped kinds, whose access :func:`create_errors` needs. Its JSON types must have been checked."""
    kinds: set[GVK] = set()
    for component in _components(appwrapper):
        if _malformed(component, Path()):
            continue
        template = component["template"]
        if not _is_nested(template):
            kinds.add(gvk_of(template))
    return kinds


def create_errors(
    appwrapper: Object, namespace: str, access: Mapping[GVK, Access]
) -> list[FieldError]:
    """Return the errors in a new AppWrapper in ``namespace``.

    ``access`` has the access of its creator to each of its kinds (:func:`component_kinds`).
    """
    errors = count_errors(appwrapper) or json_type_errors(appwrapper)
    if errors:
        return errors
    declared = declared_bytes(_components(appwrapper))
    if declared > MAX_POD_SET_BYTES:
        return [invalid(COMPONENTS, OMIT, too_large(declared))]
    if len(name_of(appwrapper).encode()) > MAX_LABEL_VALUE:
        errors.append(too_long(_NAME, name_of(appwrapper), MAX_LABEL_VALUE))
    elif _is_queued(appwrapper):
        errors += _queue_name_errors(appwrapper)
    pod_sets = 0
    names: set[tuple[str, str, str]] = set()
    for index, component in enumerate(_components(appwrapper)):
        path = COMPONENTS.index(index)
        malformed = _malformed(component, path)
        if malformed:
            errors += malformed
            continue
        template = component["template"]
        errors += _template_errors(template, path.child("template"), namespace, access)
        errors += _name_errors(template, path.child("template", "metadata", "name"), names)
        errors += _host_errors(template, path.child("template"))
        count, found = _pod_set_errors(component, path)
        errors += found
        pod_sets += count
        if _is_queued(appwrapper) and not found:
            errors += _queue_errors(component, path)
    if pod_sets == 0 and not errors:
        errors.append(invalid(COMPONENTS, OMIT, _no_pod_specs(_components(appwrapper))))
    if pod_sets > MAX_POD_SETS:
        errors.append(too_many_pod_sets(pod_sets))
    return errors


def _no_pod_specs(components: Iterable[Mapping[str, Any]]) -> str:
    """Return the error of an AppWrapper whose components have no pods, which begins with the Go operator's words."""
    templates = [component["template"] for component in islice(components, _MAX_NAMED)]
    if not templates:
        return _NO_POD_SPECS
    names = ", ".join(f"{gvk_of(template).kind} {name_of(template)}" for template in templates)
    return (
        f"{_NO_POD_SPECS}: no pod template of {names} is known; set podSets of the component to the path of its pod "
        "template, or, if it has none, create it without an AppWrapper"
    )


def create_warnings(appwrapper: Object, *, counts_added_pods: bool) -> Iterator[str]:
    """Yield warnings about a new AppWrapper that passed validation.

    ``counts_added_pods``: the operator queues the AppWrapper itself, with the pods that KubeRay adds.
    """
    components = _components(appwrapper)
    replicas = 0
    for component in components:
        replicas += sum(replicas_of(pod_set) for pod_set in pod_sets_of(component))
    yield from _count_warnings(components)
    yield from islice(_uncounted_warnings(components), _MAX_UNCOUNTED_WARNINGS)
    yield from component_warnings([each["template"] for each in components], COMPONENTS)
    yield from islice(_request_warnings(components), _MAX_REQUEST_WARNINGS)
    if replicas == 0:
        yield f"{COMPONENTS}: all pod sets have 0 replicas, so the AppWrapper succeeds as soon as they are created"
    if counts_added_pods or not labels_of(appwrapper).get(QUEUE_NAME_LABEL):
        return
    for index, component in enumerate(components):
        for addition in uncounted_additions(component["template"]):
            path = COMPONENTS.index(index).child("template")
            yield f"{path}: Kueue's integration of AppWrappers does not count what is in no pod template: {addition}"


def _request_warnings(components: list[dict[str, Any]]) -> Iterator[str]:
    """Yield which requests of containers the API server will refuse or warn of when the pods are created."""
    for index, component in enumerate(components):
        template = component["template"]
        for pod_set in pod_sets_of(component):
            spec = mapping(value_or_none(template, f"{pod_set['path']}.spec"))
            where = f"{COMPONENTS}[{index}].{pod_set['path']}.spec"
            yield from request_warnings(spec, where)


def _count_warnings(components: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a warning for each declared pod set that is counted with more pods than are declared."""
    for index, component in enumerate(components):
        declared = component.get("podSets") or []
        replaced = undercounted_pod_sets(component["template"], declared)
        for position, pod_set in enumerate(declared):
            number = replaced.get(pod_set.get("path") or "")
            if number is not None:
                path = COMPONENTS.index(index).child("podSets").index(position).child("replicas")
                yield f"{path}: {replicas_of(pod_set)}: {number} pods are counted, because as many can run"


def _uncounted_warnings(components: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a warning for each custom resource without pod sets: only its controller knows whether it creates pods."""
    for index, component in enumerate(components):
        gvk = gvk_of(component["template"])
        is_builtin = "." not in gvk.group or gvk.group.endswith(_BUILTIN_GROUPS)
        if is_builtin or pod_sets_of(component):
            continue
        path = COMPONENTS.index(index)
        yield (
            f"{path}: no pods of the {gvk.kind} are counted, because it has no podSets; if it creates pods, these use "
            "no quota of the AppWrapper, which can succeed while they run"
        )


def update_errors(old: Object, new: Object) -> list[FieldError]:
    """Return an error for each immutable field that was changed; stop after the number that is reported."""
    errors = json_type_errors(new) or json_type_errors(old)
    if errors:
        return errors
    return list(islice(_changes(old, new), MAX_ERRORS + 1))


def _changes(old: Object, new: Object) -> Iterator[FieldError]:
    before = _components(old)
    after = _components(new)
    if len(before) != len(after):
        yield _immutable(COMPONENTS)
        return
    for index, (was, now) in enumerate(zip(before, after, strict=True)):
        yield from _component_changes(was, now, COMPONENTS.index(index))
    if not _is_suspended(old) and not _is_suspended(new):
        yield from _info_changes(before, after)
    if _is_queued(new) and not _is_queued(old):
        yield from _first_queue_errors(new)
    kept = [USER_LABEL, USER_ID_LABEL]
    if not is_idle(old) or not _is_suspended(new):
        # What runs was admitted by this queue, and only its Workload ends it. Kueue's webhook allows a change together
        # with the suspension, after which nothing would follow the Workload of what still runs.
        kept.append(QUEUE_NAME_LABEL)
    for label in kept:
        if labels_of(old).get(label, "") != labels_of(new).get(label, ""):
            yield _immutable(_LABELS.key(label))
    if _spec(old).get("managedBy") != _spec(new).get("managedBy"):
        yield _immutable(Path("spec", "managedBy"))


def _info_changes(
    old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]
) -> Iterator[FieldError]:
    """Yield an error for each component of a running AppWrapper whose ``podSetInfos`` have changed.

    Kueue, and this operator, write them together with ``spec.suspend``.
    """
    for index, (was, now) in enumerate(zip(old, new, strict=True)):
        if _encoded(was.get(_INFOS) or []) != _encoded(now.get(_INFOS) or []):
            yield _immutable(COMPONENTS.index(index).child(_INFOS))


def _first_queue_errors(appwrapper: Object) -> Iterator[FieldError]:
    """Yield the errors in an AppWrapper that was created without a queue, and gets one."""
    yield from _queue_name_errors(appwrapper)
    for index, component in enumerate(_components(appwrapper)):
        path = COMPONENTS.index(index)
        if _malformed(component, path):
            continue
        _, found = _pod_set_errors(component, path)
        yield from found or _queue_errors(component, path)


def _spec(appwrapper: Object) -> Mapping[str, Any]:
    return appwrapper.get("spec") or {}


def _is_suspended(appwrapper: Object) -> bool:
    return bool(_spec(appwrapper).get("suspend"))


def _components(appwrapper: Object) -> list[dict[str, Any]]:
    return _spec(appwrapper).get("components") or []


def _malformed(component: Mapping[str, Any], path: Path) -> list[FieldError]:
    """Return the errors that prevent a component's template from being read."""
    path = path.child("template")
    template = component.get("template")
    if not isinstance(template, dict):
        return [_not_a(path, "object")]
    errors: list[FieldError] = []
    for name in ("apiVersion", "kind"):
        value = template.get(name)
        if value is not None and not isinstance(value, str):
            errors.append(_not_a(path.child(name), "string"))
        elif not value:
            errors.append(required(path.child(name)))
    if not isinstance(template.get("metadata") or {}, dict):
        errors.append(_not_a(path.child("metadata"), "object"))
    return errors


def _not_a(path: Path, json_type: str) -> FieldError:
    return type_invalid(path, OMIT, f"must be of type {json_type}")


def _is_nested(template: Object) -> bool:
    """Return whether a component is itself an AppWrapper, of any version."""
    gvk = gvk_of(template)
    return (gvk.group, gvk.kind) == (APPWRAPPER.group, APPWRAPPER.kind)


def _template_errors(
    template: Object, path: Path, namespace: str, access: Mapping[GVK, Access]
) -> Iterator[FieldError]:
    is_nested = _is_nested(template)
    if is_nested:
        yield forbidden(path, "Nested AppWrappers are forbidden")
    other_namespace = (template.get("metadata") or {}).get("namespace")
    if other_namespace and other_namespace != namespace:
        yield forbidden(
            path.child("metadata", "namespace"),
            "AppWrappers cannot create objects in other namespaces",
        )
    if not is_nested:
        gvk = gvk_of(template)
        yield from _access_errors(gvk, path, access[gvk])


def _access_errors(gvk: GVK, path: Path, access: Access) -> Iterator[FieldError]:
    if access.failure:
        yield internal(path, access.failure)
    elif access.resource is None:
        version = f"{gvk.group}/{gvk.version}" if gvk.group else gvk.version
        yield invalid(
            path.child("kind"), gvk.kind, f'no matches for kind "{gvk.kind}" in version "{version}"'
        )
    elif not access.resource.namespaced:
        yield forbidden(
            path,
            f"AppWrappers cannot create cluster-scoped objects such as {access.resource.plural}",
        )
    elif not access.resource.verbs >= _REQUIRED_VERBS:
        yield forbidden(
            path, f"AppWrappers cannot create {access.resource.plural}, which are not persisted"
        )
    elif access.denial:
        yield forbidden(path, access.denial)


def _name_errors(
    template: Object, path: Path, names: set[tuple[str, str, str]]
) -> Iterator[FieldError]:
    """Reject an object that an earlier component also creates; ``names`` are the objects of earlier components.

    A name that no object can have is rejected, too, because the status repeats it.
    """
    name = name_of(template)
    if not name or _is_nested(template):
        return
    if len(name.encode()) > _MAX_NAME:
        yield too_long(path, name, _MAX_NAME)
        return
    gvk = gvk_of(template)
    key = (gvk.group, gvk.kind, name)
    if key in names:
        yield duplicate(path, name)
    names.add(key)


def _host_errors(template: Object, path: Path) -> list[FieldError]:
    """Return errors for hosts of RayClusters in an object that the operator creates with its own permissions."""
    found = chain(
        reserved_host_errors(template.get("spec"), path.child("spec")),
        generated_host_errors(template, path),
    )
    return list(islice(found, MAX_ERRORS + 1))


def _pod_set_errors(component: Mapping[str, Any], path: Path) -> tuple[int, list[FieldError]]:
    """Count the pod sets of one component, without submitters of RayJobs, and return the errors in them as well."""
    template = component["template"]
    declared = component.get("podSets") or []
    sets_path = path.child("podSets")
    errors: list[FieldError] = []
    inferred: list[Object] = []
    failure = ""
    try:
        inferred = infer_pod_sets(template)
        check_added_pods(template)
    except PodSetError as error:
        failure = f"error inferring PodSets: {error}"
    # The templates of inferred pod sets have been read.
    problems = {pod_set["path"]: "" for pod_set in inferred}
    for index, pod_set in enumerate(declared):
        errors += _declared_errors(template, pod_set, sets_path.index(index), problems)
    if failure:
        return 0, [*errors, invalid(path.child("template"), OMIT, failure)]
    replaced = undercounted_pod_sets(template, declared)
    for mismatch in pod_set_mismatches(declared, inferred, replaced):
        errors.append(invalid(sets_path, _as_go_prints(declared), mismatch))
    if not errors:
        errors += islice(negative_request_errors(component, path), MAX_ERRORS + 1)
    return max(_count(template, declared), _count(template, inferred)), errors


def _is_queued(appwrapper: Object) -> bool:
    return bool(labels_of(appwrapper).get(QUEUE_NAME_LABEL))


def _queue_name_errors(appwrapper: Object) -> list[FieldError]:
    """Return an error if a Workload cannot have pod sets with the name of ``appwrapper`` and a number, as in Kueue."""
    name = name_of(appwrapper)
    if not name or is_dns_label(f"{name}-0"):
        return []
    message = (
        "with a queue, must be a DNS label of at most 61 characters, without dots, because the pod sets of its "
        f"Workload are named {name}-0 and so on"
    )
    return [invalid(_NAME, name, message)]


def _queue_errors(component: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in a component whose pod sets are valid, because of which a queue cannot count its pods."""
    template = component["template"]
    for group in unlimited_worker_groups(template):
        where = path.child(f"{group}.maxReplicas")
        yield required(
            where, "Ray's autoscaler can add pods, so the queue must know the greatest number"
        )
    yield from queue_errors(component, path)
    yield from submitter_errors(component, path)


def _count(template: Object, pod_sets: list[Object]) -> int:
    """Return the number of ``pod_sets`` without submitters, which the Go operator does not infer."""
    gvk = gvk_of(template)
    return len([pod_set for pod_set in pod_sets if not is_submitter(gvk, pod_set)])


def _declared_errors(
    template: Object, pod_set: Mapping[str, Any], path: Path, problems: dict[str, str]
) -> Iterator[FieldError]:
    """Yield the errors in ``pod_set``; ``problems`` are those of the paths that were read before, empty if none."""
    where = pod_set.get("path") or ""
    if not where:
        yield required(path.child("path"), "podspec must specify path")
    if where not in problems:
        problems[where] = _template_problem(template, where)
    if problems[where]:
        detail = f"path does not refer to a v1.PodSpecTemplate: {problems[where]}"
        yield invalid(path.child("path"), where, detail)
    replicas = replicas_of(pod_set)
    if not 0 <= replicas <= _MAX_REPLICAS:
        yield invalid(
            path.child("replicas"), replicas, f"must be between 0 and {_MAX_REPLICAS}, inclusive"
        )


def _template_problem(template: Object, path: str) -> str:
    try:
        pod_template_at(template, path)
    except PodSetError as error:
        return str(error)
    return ""


def _as_go_prints(declared: list[Mapping[str, Any]]) -> Verbatim:
    """Format the declared pod sets as Go does, with fields in the order of the Go type."""
    items: list[str] = []
    for pod_set in declared:
        names = [name for name in _POD_SET_FIELDS if name in pod_set]
        fields = ",".join(f'"{name}":{go_json(pod_set[name])}' for name in names)
        items.append(f"{{{fields}}}")
    return Verbatim(f"[{','.join(items)}]")


def _component_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Path
) -> Iterator[FieldError]:
    if _encoded(old.get("template")) != _encoded(new.get("template")):
        yield _immutable(path.child("template", "raw"))
    path = path.child("podsets")
    before = old.get("podSets") or []
    after = new.get("podSets") or []
    if len(before) != len(after):
        yield _immutable(path)
        return
    for index, (was, now) in enumerate(zip(before, after, strict=True)):
        if replicas_of(was) != replicas_of(now):
            yield _immutable(path.index(index).child("replicas"))
        if was.get("path") != now.get("path"):
            yield _immutable(path.index(index).child("path"))


def _encoded(value: Any) -> bytes:
    """Encode ``value`` for comparison, because 1, 1.0 and true are equal in Python."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _immutable(path: Path) -> FieldError:
    return forbidden(path, _IMMUTABLE)


def template_change_warnings(old: Object, new: Object) -> list[str]:
    """Return which fields of templates have changed, as users name them: :func:`update_errors` has Go's words.

    To be called if :func:`update_errors` found no wrong JSON types.
    """
    changed: list[str] = []
    for index, (was, now) in enumerate(zip(_components(old), _components(new), strict=False)):
        before = was.get("template")
        after = now.get("template")
        if _encoded(before) != _encoded(after):
            path = COMPONENTS.index(index).child("template")
            changed.append(str(_changed_field(path, before, after)))
        if len(changed) == _MAX_NAMED:
            break
    return [f"templates differ first in {', '.join(changed)}"] if changed else []


def _changed_field(path: Path, old: Any, new: Any) -> Path:
    """Return the path of the first field in which ``old`` and ``new``, which differ, do so.

    Or that of a field around it, if that has too many others.
    """
    for _ in range(_MAX_DEPTH):
        if _has_many_fields(old) or _has_many_fields(new):
            return path
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            name = next(each for each in sorted({*old, *new}) if _differs(each, old, new))
            if len(name) > _MAX_KEY or not name.isprintable():
                return path
            path = path.child(name) if _FIELD_NAME.fullmatch(name) else path.key(name)
            old = old.get(name)
            new = new.get(name)
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            pairs = zip(old, new, strict=True)
            index = next(i for i, (was, now) in enumerate(pairs) if _encoded(was) != _encoded(now))
            path = path.index(index)
            old = old[index]
            new = new[index]
        else:
            break
    return path


def _has_many_fields(value: Any) -> bool:
    return isinstance(value, Mapping | list) and len(value) > _MAX_COMPARED


def _differs(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if (name in old) != (name in new):
        return True
    return _encoded(old[name]) != _encoded(new[name])


def change_warnings(errors: Iterable[FieldError]) -> Iterator[str]:
    """Yield what to do instead of changing the fields that cannot be changed: :func:`update_errors` has Go's words."""
    changed = {error.field for error in errors if error.detail == _IMMUTABLE}
    changed -= {str(_LABELS.key(label)) for label in (USER_LABEL, USER_ID_LABEL)}
    queue = str(_LABELS.key(QUEUE_NAME_LABEL))
    if queue in changed:
        yield f"{queue} can be changed while spec.suspend is true and the condition {QUOTA_RESERVED} is not"
    infos = {field for field in changed if field.endswith(f".{_INFOS}")}
    if infos:
        yield f"{_INFOS} is what the queue requires; it can be changed only together with spec.suspend"
    if changed - infos - {queue}:
        yield "to change these fields, delete the AppWrapper, and create it again with the change"
