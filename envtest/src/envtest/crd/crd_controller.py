"""The lifecycle of CRDs: accepted names, conditions, serving, and removal together with all their objects.

In a cluster, controllers do this shortly after a CRD is written. Here it follows each write immediately, as further
writes to the CRD's status, so that a watcher sees the same steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from envtest.admission.webhook_client import WebhookClient
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.field_errors import go_quote
from envtest.apimachinery.objects import Object, format_time
from envtest.builtins.catalog import object_meta, storage_hash
from envtest.crd.conversion import Conversions
from envtest.crd.crd_strategy import CLEANUP_FINALIZER, condition_of, set_condition
from envtest.crd.custom_resource_strategy import CustomResourceStrategy
from envtest.registry.registry import Registry
from envtest.registry.resource import ResourceInfo, Subresource
from envtest.registry.storage_version import removed_version
from envtest.schema.schema_node import Schema
from envtest.storage import Change, Record, Store
from envtest.storage.record import DELETED

__all__ = ["CRDS", "CRDController"]

CRDS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
_TRACKED = ("apiVersion", "kind", "metadata", "status")
"""The parts of a CRD that a write of its status can change."""
_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_NAMES = (
    ("plural", "Plural"),
    ("singular", "Singular"),
    ("kind", "Kind"),
    ("listKind", "ListKind"),
)


class Track(Protocol):
    """Records the managers of the fields that an update of a CRD's status changes."""

    def __call__(self, old: Object, new: Object, /, *, manager: str, now: str) -> None:
        """Set ``metadata.managedFields`` of ``new``."""


def _wall_clock() -> str:
    return format_time(datetime.now(UTC))


class CRDController:
    """Follows the CRDs in the store and updates the registry, their statuses and their objects.

    ``webhooks`` calls conversion webhooks; ``track`` records the managers of changed fields; ``now`` returns the time
    of condition changes (RFC 3339).
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        webhooks: WebhookClient,
        track: Track,
        *,
        now: Callable[[], str] = _wall_clock,
    ) -> None:
        self._store = store
        self._registry = registry
        self._track = track
        self._now = now
        self._served: dict[str, tuple[Any, ...]] = {}
        self._terminating: dict[GroupResource, str] = {}
        self._conversions = Conversions(webhooks)

    def fork(
        self,
        store: Store,
        registry: Registry,
        webhooks: WebhookClient,
        track: Track,
        *,
        now: Callable[[], str],
    ) -> CRDController:
        """Return the controller of a copy of the control plane, whose ``registry`` serves the same resources.

        Conversion webhooks are called by the copy's own client.
        """
        copied = CRDController(store, registry, webhooks, track, now=now)
        copied._served = dict(self._served)
        copied._terminating = dict(self._terminating)
        for spec, names, _ in copied._served.values():
            if (spec.get("conversion") or {}).get("strategy") != "Webhook":
                continue
            convert = copied._conversions.converter({"spec": spec})
            for version in spec["versions"]:
                info = registry.lookup(spec["group"], version["name"], names["plural"])
                if info is not None:
                    registry.register(replace(info, convert=convert))
        return copied

    def follow(self, resource: GroupResource, change: Change) -> None:
        """Handle a change of the store; call this after each change."""
        if resource == CRDS:
            self._crd_changed(change)
        elif change.type == DELETED and resource in self._terminating:
            self._finish_removal(self._terminating[resource])

    def _crd_changed(self, change: Change) -> None:
        crd = change.record.obj()
        if change.type == DELETED:
            self._stop_serving(crd)
            self._retry_conflicts(crd["spec"]["group"])
            return
        if crd["metadata"].get("deletionTimestamp") and CLEANUP_FINALIZER in crd["metadata"].get(
            "finalizers", ()
        ):
            self._serve(crd)
            self._remove_objects(crd, change.record)
            return
        if self._accept_names(crd):
            # this method is called again with the resulting change
            self._update_status(crd, change.record)
            return
        self._serve(crd)

    def _update_status(self, crd: Object, record: Record) -> None:
        """Store a changed status; its fields belong to kube-apiserver, whose controllers write them in a cluster."""
        stored = record.obj()
        before = {name: stored[name] for name in _TRACKED}
        after = {name: crd[name] for name in _TRACKED}
        self._track(before, after, manager="kube-apiserver", now=self._now())
        self._store.update(CRDS, crd, record)

    def _accept_names(self, crd: Object) -> bool:
        """Check the names and set the conditions; return whether the status changed."""
        before = crd["status"]
        requested = crd["spec"]["names"]
        accepted = dict(before.get("acceptedNames") or {})
        taken = self._taken_names(crd)
        now = self._now()
        status: Object = {
            **before,
            "conditions": [dict(each) for each in before.get("conditions") or ()],
        }
        work: Object = {**crd, "status": status}
        conflict = _conflict(requested, accepted, taken)
        status["acceptedNames"] = {"plural": "", "kind": "", **accepted}
        if conflict is None:
            set_condition(
                work,
                "NamesAccepted",
                holds=True,
                reason="NoConflicts",
                message="no conflicts found",
                now=now,
            )
        else:
            set_condition(
                work, "NamesAccepted", holds=False, reason=conflict[0], message=conflict[1], now=now
            )
        established = condition_of(work, "Established")
        if established is None or established.get("status") != "True":
            if conflict is None:
                message = "the initial names have been accepted"
                set_condition(
                    work,
                    "Established",
                    holds=True,
                    reason="InitialNamesAccepted",
                    message=message,
                    now=now,
                )
            else:
                message = "not all names are accepted"
                set_condition(
                    work, "Established", holds=False, reason="NotAccepted", message=message, now=now
                )
        if status == before:
            return False
        crd["status"] = status
        return True

    def _taken_names(self, crd: Object) -> tuple[set[str], set[str]]:
        """Return the resource names and kinds that other CRDs of the group use."""
        resources: set[str] = set()
        kinds: set[str] = set()
        for record in self._store.list(CRDS):
            other = record.obj()
            if (
                record.name == crd["metadata"]["name"]
                or other["spec"]["group"] != crd["spec"]["group"]
            ):
                continue
            names = other["status"].get("acceptedNames") or {}
            resources |= {
                names.get("plural") or "",
                names.get("singular") or "",
                *(names.get("shortNames") or ()),
            }
            kinds |= {names.get("kind") or "", names.get("listKind") or ""}
        return resources - {""}, kinds - {""}

    def _retry_conflicts(self, group: str) -> None:
        """Check again the CRDs of ``group`` whose names were in conflict, because names became free."""
        for record in list(self._store.list(CRDS)):
            crd = record.obj()
            condition = condition_of(crd, "NamesAccepted")
            in_conflict = condition is not None and condition["status"] == "False"
            if in_conflict and crd["spec"]["group"] == group and self._accept_names(crd):
                self._update_status(crd, record)

    def _serve(self, crd: Object) -> None:
        """Register the served versions of the CRD if they changed."""
        established = condition_of(crd, "Established")
        if established is None or established.get("status") != "True":
            return
        spec = crd["spec"]
        name = crd["metadata"]["name"]
        terminating = bool(crd["metadata"].get("deletionTimestamp"))
        signature = (spec, crd["status"]["acceptedNames"], terminating)
        known = self._served.get(name)
        if known is not None and known == signature:
            return
        self._served[name] = signature
        schema_changed = known is not None and known[0].get("versions") != spec.get("versions")
        plural = crd["status"]["acceptedNames"].get("plural") or spec["names"]["plural"]
        records = self._store.list(GroupResource(spec["group"], plural))
        is_restored = known is None and bool(records)  # an earlier process stored the objects
        read_through = 0
        if schema_changed or is_restored:  # objects older than the CRD may have another schema
            read_through = int(crd["metadata"]["resourceVersion"])
        infos = _infos(
            crd,
            self._conversions,
            read_through=read_through,
            unreadable=_read_error(spec, records),
        )
        served = {info.version for info in infos}
        for info in list(self._registry):
            if info.group == spec["group"] and info.plural == plural:
                if info.version not in served:
                    self._registry.unregister(info.group, plural, info.version)
                elif not schema_changed:
                    _reuse_strategy(info, infos)
        for info in infos:
            self._registry.register(info)
        if known is None or known[:2] != signature[:2]:
            self._store.restart_watches(GroupResource(spec["group"], plural))

    def _stop_serving(self, crd: Object) -> None:
        spec = crd["spec"]
        table = GroupResource(spec["group"], spec["names"]["plural"])
        self._terminating.pop(table, None)
        if self._served.pop(crd["metadata"]["name"], None) is not None:
            self._registry.unregister(*table)
            self._store.close_watchers(table)

    def _remove_objects(self, crd: Object, record: Record) -> None:
        """Delete all objects; the CRD waits for objects with finalizers."""
        spec = crd["spec"]
        name = crd["metadata"]["name"]
        table = GroupResource(spec["group"], spec["names"]["plural"])
        if table in self._terminating:
            return
        instances = list(self._store.list(table))
        failure = _read_error(spec, instances)
        if failure:
            self._report_failed_removal(crd, record, failure)
            return
        self._terminating[table] = name
        for instance in instances:
            obj = instance.obj()
            metadata = obj["metadata"]
            if not metadata.get("finalizers"):
                self._store.delete(table, instance)
            elif not metadata.get("deletionTimestamp"):
                metadata["deletionTimestamp"] = self._now()
                metadata["deletionGracePeriodSeconds"] = 0
                metadata["generation"] = (metadata.get("generation") or 0) + 1
                self._store.update(table, obj, instance)
        if self._store.count(table):
            set_condition(
                crd,
                "Terminating",
                holds=True,
                reason="InstanceDeletionInProgress",
                message="CustomResource deletion is in progress",
                now=self._now(),
            )
            current = self._store.get(CRDS, "", name)
            if current is record:
                self._update_status(crd, record)
        else:
            self._finish_removal(name)

    def _report_failed_removal(self, crd: Object, record: Record, failure: str) -> None:
        """Report objects that cannot be read; the next change of the CRD tries again."""
        spec = crd["spec"]
        gvk = f"{spec['group']}/{_storage_version(spec)}, Kind={spec['names']['kind']}"
        before = condition_of(crd, "Terminating")
        set_condition(
            crd,
            "Terminating",
            holds=True,
            reason="InstanceDeletionFailed",
            message=f"could not list instances: storage is (re)initializing: failed to list {gvk}: {failure}",
            now=self._now(),
        )
        if condition_of(crd, "Terminating") != before:
            self._update_status(crd, record)

    def _finish_removal(self, name: str) -> None:
        """Remove the finalizer of a CRD whose last object was deleted."""
        record = self._store.get(CRDS, "", name)
        if record is None:
            return
        crd = record.obj()
        spec = crd["spec"]
        if self._store.count(GroupResource(spec["group"], spec["names"]["plural"])):
            return
        rest = [
            each for each in crd["metadata"].get("finalizers") or () if each != CLEANUP_FINALIZER
        ]
        set_condition(
            crd,
            "Terminating",
            holds=False,
            reason="InstanceDeletionCompleted",
            message="removed all instances",
            now=self._now(),
        )
        if rest:
            crd["metadata"]["finalizers"] = rest
            self._update_status(crd, record)
        else:
            self._store.delete(CRDS, record)


def _conflict(
    requested: Mapping[str, Any], accepted: Object, taken: tuple[set[str], set[str]]
) -> tuple[str, str] | None:
    """Copy the free names of ``requested`` to ``accepted``; return reason and message of the last conflict."""
    conflict: tuple[str, str] | None = None
    resources, kinds = taken
    for name, word in _NAMES[:2]:
        conflict = _take(name, word, requested, accepted, resources) or conflict
    wanted = requested.get("shortNames") or []
    held = accepted.get("shortNames") or []
    blocked = [each for each in wanted if each not in held and each in resources]
    if blocked:
        texts = [f"{go_quote(each)} is already in use" for each in blocked]
        conflict = "ShortNamesConflict", texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    else:
        _put(accepted, "shortNames", wanted)
    for name, word in _NAMES[2:]:
        conflict = _take(name, word, requested, accepted, kinds) or conflict
    _put(accepted, "categories", requested.get("categories") or [])
    return conflict


def _take(
    name: str, word: str, requested: Mapping[str, Any], accepted: Object, taken: set[str]
) -> tuple[str, str] | None:
    wanted = requested.get(name) or ""
    if wanted != accepted.get(name) and wanted in taken:
        return f"{word}Conflict", f"{go_quote(wanted)} is already in use"
    _put(accepted, name, wanted)
    return None


def _put(names: Object, name: str, value: Any) -> None:
    if value or name in ("plural", "kind"):
        names[name] = value
    else:
        names.pop(name, None)


def _reuse_strategy(info: ResourceInfo, infos: list[ResourceInfo]) -> None:
    """Reuse the strategy of a version whose schema did not change, because compiling it is expensive."""
    for new in infos:
        if new.version == info.version:
            new.strategy = info.strategy
            new.schema = info.schema
            new.read_through = info.read_through


def _read_error(spec: Mapping[str, Any], records: Sequence[Record]) -> str:
    """Return the error of reading the first object that is stored in a version which the CRD no longer has."""
    versions = {f"{spec['group']}/{version['name']}" for version in spec["versions"]}
    for record in records:
        if record.api_version not in versions:
            return removed_version(record.api_version)
    return ""


def _storage_version(spec: Mapping[str, Any]) -> str:
    return next(str(version["name"]) for version in spec["versions"] if version.get("storage"))


def _infos(
    crd: Object, conversions: Conversions, *, read_through: int, unreadable: str
) -> list[ResourceInfo]:
    """Return the served versions of a CRD, the most stable first."""
    spec = crd["spec"]
    names = crd["status"]["acceptedNames"]
    group = spec["group"]
    plural = names["plural"]
    kind = names["kind"]
    stored = _storage_version(spec)
    strategies = {
        f"{group}/{version['name']}": _strategy(version, group, kind)
        for version in spec["versions"]
    }
    for each in strategies.values():
        each.versions = strategies
    infos = []
    for version in sorted(
        spec["versions"], key=lambda each: version_priority(each["name"]), reverse=True
    ):
        if not version.get("served"):
            continue
        raw = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        subresources = version.get("subresources") or {}
        infos.append(
            ResourceInfo(
                group=group,
                version=version["name"],
                plural=plural,
                singular=names.get("singular") or kind.lower(),
                kind=kind,
                list_kind=names.get("listKind") or f"{kind}List",
                namespaced=spec["scope"] == "Namespaced",
                strategy=strategies[f"{group}/{version['name']}"],
                verbs=_VERBS,
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=_subresources(subresources),
                schema=published_schema(raw),
                is_crd=True,
                columns=version.get("additionalPrinterColumns") or (),
                selectable_fields=tuple(
                    each["jsonPath"] for each in version.get("selectableFields") or ()
                ),
                storage=GroupResource(group, plural),
                storage_version=f"{group}/{stored}",
                storage_version_hash=storage_hash(group, stored, kind),
                convert=conversions.converter(crd),
                converts_by_webhook=(spec.get("conversion") or {}).get("strategy") == "Webhook",
                read_through=read_through,
                versions=frozenset(f"{group}/{each['name']}" for each in spec["versions"]),
                unreadable=unreadable,
                terminating=bool(crd["metadata"].get("deletionTimestamp")),
                deprecation=_deprecation(version, spec),
            )
        )
    return infos


def _strategy(version: Mapping[str, Any], group: str, kind: str) -> CustomResourceStrategy:
    subresources = version.get("subresources") or {}
    return CustomResourceStrategy(
        kind,
        f"{group}/{version['name']}",
        (version.get("schema") or {}).get("openAPIV3Schema") or {},
        has_status="status" in subresources,
        scale=subresources.get("scale"),
    )


def _deprecation(version: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return the warning for requests to a deprecated version: its own, or one that names the version to use."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    group = spec["group"]
    kind = spec["names"]["kind"]
    rank = version_priority(version["name"])
    text = f"{group}/{version['name']} {kind} is deprecated"
    better = [
        each["name"]
        for each in spec["versions"]
        if each.get("served")
        and not each.get("deprecated")
        and version_priority(each["name"]) > rank
    ]
    return f"{text}; use {group}/{max(better, key=version_priority)} {kind}" if better else text


def _subresources(raw: Mapping[str, Any]) -> dict[str, Subresource]:
    found = {}
    if raw.get("status") is not None:
        found["status"] = Subresource("status")
    if raw.get("scale") is not None:
        found["scale"] = Subresource(
            "scale", kind="Scale", group="autoscaling", version="v1", settings=raw["scale"]
        )
    return found


def version_priority(name: str) -> tuple[int, int, int, tuple[int, ...]]:
    """Return a sort key of version names: ``v2``, ``v1``, ``v1beta2``, ``v1alpha1``, then others by their letters."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", name)
    if match is None:
        return (0, 0, 0, tuple(-ord(character) for character in name))
    major, stage, minor = match.groups()
    rank = {None: 3, "beta": 2, "alpha": 1}[stage]
    return (rank, int(major), int(minor or 0), ())


def published_schema(raw: Mapping[str, Any]) -> Schema:
    """Return the schema of whole objects, with apiVersion, kind and ObjectMeta."""
    identity = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    return Schema({**raw, "properties": {**(raw.get("properties") or {}), **identity}}).with_field(
        "metadata", object_meta()
    )
