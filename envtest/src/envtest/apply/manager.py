"""``metadata.managedFields``: decoding, encoding, and updates on every write, for updates and for server-side apply.

Combines the managers of apimachinery's ``util/managedfields``, which handle fields that are never owned, the manager
name of a request, timestamps, the limit on update managers, the first apply to an object without managed fields, and
kubectl's migration from client-side to server-side apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

import orjson

from envtest.apimachinery.errors import StatusError, apply_conflict, bad_request, plain_error
from envtest.apimachinery.objects import Object, full_name
from envtest.apply.fieldset import FieldSet, InvalidFields, Path, format_path
from envtest.apply.schema_types import ObjectType
from envtest.apply.updater import (
    Conflicts,
    ConversionFailed,
    ConversionPending,
    Convert,
    ManagerId,
    Managers,
    OwnedFields,
    Updater,
)
from envtest.apply.value_operations import (
    ABSENT,
    TypeMismatch,
    compare,
    field_set,
    json_equal,
    validate,
)

__all__ = ["Tracker", "decode_managers", "encode_managers", "is_reset", "restore_times"]

T = TypeVar("T")

APPLY = "Apply"
UPDATE = "Update"
BEFORE_FIRST_APPLY: Final = "before-first-apply"
ANCIENT_CHANGES: Final = "ancient-changes"
MAX_UPDATERS: Final = 10
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_CURRENT_OPERATION: Final = ManagerId("current-operation", "")
_NEVER_OWNED: Final = FieldSet.of(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)

Times = dict[ManagerId, str]


def decode_managers(entries: Any) -> tuple[Managers, Times]:
    """Decode ``managedFields``. Raises InvalidFields when kube-apiserver cannot decode it either."""
    managers: Managers = {}
    times: Times = {}
    for index, entry in enumerate(entries or ()):
        operation = entry.get("operation")
        version = entry.get("apiVersion")
        if operation not in (APPLY, UPDATE):
            raise InvalidFields("operation must be `Apply` or `Update`")
        if not version:
            raise InvalidFields("apiVersion must not be empty")
        fields_type = entry.get("fieldsType")
        if not fields_type:
            raise InvalidFields(f"missing fieldsType in managed fields entry {index}")
        if fields_type != "FieldsV1":
            raise InvalidFields(
                f'invalid fieldsType "{fields_type}" in managed fields entry {index}'
            )
        applied = operation == APPLY
        # the identity of an applier does not depend on the version
        own_version = "" if applied else version
        manager = ManagerId(
            entry.get("manager") or "",
            operation,
            own_version,
            entry.get("subresource") or "",
        )
        managers[manager] = OwnedFields(
            FieldSet.decode(entry.get("fieldsV1") or {}), version, applied
        )
        time = entry.get("time")
        if time:
            times[manager] = time
    return managers, times


def encode_managers(managers: Managers, times: Times) -> list[dict[str, Any]]:
    """Encode as ``managedFields``, in kube-apiserver's order: by operation, time and name."""
    entries = []
    for manager, owned in managers.items():
        entry: dict[str, Any] = {"manager": manager.manager} if manager.manager else {}
        entry["operation"] = APPLY if owned.applied else manager.operation
        entry["apiVersion"] = owned.api_version
        time = times.get(manager)
        if time:
            entry["time"] = time
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = owned.fields.encode()
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    entries.sort(
        key=lambda entry: (
            entry["operation"],
            entry.get("time", ""),
            entry.get("manager", ""),
            entry["apiVersion"],
            entry.get("subresource", ""),
        )
    )
    return entries


def _with_sent_lists(new: Object, sent: Mapping[str, Any]) -> Object:
    """Return fields with an empty list for each ``null`` that the client sent as one."""
    empty: dict[str, Any] = {
        name: [] for name, value in new.items() if value is None and sent.get(name) == []
    }
    return {**new, **empty} if empty else new


def is_reset(entries: Any) -> bool:
    """Report whether a client resets ``managedFields``, with an empty list or one empty entry."""
    return isinstance(entries, list) and (not entries or entries == [{}])


def restore_times(new: Object, old: Mapping[str, Any]) -> bool:
    """Restore the old timestamps when a write changed nothing else; return whether that is the case.

    Both objects must be in the same version. Without this an apply that changes nothing would be written.
    """
    fresh = new["metadata"].get("managedFields") or []
    stored = old["metadata"].get("managedFields") or []
    if len(fresh) != len(stored):
        return False
    if _without_times(fresh) != _without_times(stored):
        return False
    if not _equal_except_managed_fields(new, old):
        return False
    if stored:
        new["metadata"]["managedFields"] = stored
    return True


def _without_times(entries: Sequence[Mapping[str, Any]]) -> list[bytes]:
    encoded = []
    for entry in entries:
        content = {name: value for name, value in entry.items() if name != "time"}
        encoded.append(orjson.dumps(content, option=orjson.OPT_SORT_KEYS))
    return encoded


def _equal_except_managed_fields(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    if new.keys() != old.keys():
        return False
    for name, value in new.items():
        other = old[name]
        if name == "metadata":
            one = {key: item for key, item in value.items() if key != "managedFields"}
            two = {key: item for key, item in other.items() if key != "managedFields"}
            if not json_equal(one, two):
                return False
        elif not json_equal(value, other):
            return False
    return True


def _deep_copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


class Tracker:
    """Tracks field ownership of one kind in one version, for one endpoint.

    ``reset`` are the fields that the endpoint ignores, in ``reset_versions`` (by default in its own). ``types`` returns
    the type of the other versions in which managers may have written (``None`` for a version that is no longer served),
    and ``convert`` converts an object to another version; without them only ``api_version`` exists.
    """

    def __init__(
        self,
        kind: ObjectType,
        api_version: str,
        kind_name: str,
        *,
        subresource: str = "",
        reset: FieldSet | None = None,
        reset_versions: Sequence[str] = (),
        types: Callable[[str], ObjectType | None] | None = None,
        convert: Convert | None = None,
    ) -> None:
        self._kind = kind
        self._api_version = api_version
        self._kind_name = kind_name
        self._subresource = subresource
        self._types = types
        reset_fields = dict.fromkeys(reset_versions or (api_version,), reset) if reset else {}
        self._updater = Updater(self._type_of, convert or _set_api_version, reset_fields)

    def _type_of(self, api_version: str) -> ObjectType | None:
        if api_version == self._api_version:
            return self._kind
        return self._types(api_version) if self._types is not None else None

    async def run_with_conversions(self, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt``, which calls :meth:`track` or :meth:`apply`.

        It is repeated until all asynchronous conversions that it needs, by a webhook, are done.
        """
        while True:
            try:
                return attempt()
            except ConversionPending as pending:
                await pending.convert()

    def track(
        self,
        old: Mapping[str, Any] | None,
        new: Object,
        *,
        manager: str,
        now: str,
        sent: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Set the managedFields of ``new`` after a create (no ``old``), an update or a patch.

        ``new`` is the object to be stored, in its served version and before its metadata get a resourceVersion; it has
        the managedFields that the client sent. ``now`` is RFC 3339. ``sent`` is the object before it was decoded: an
        empty list is a change of a stored ``null``, although the store keeps neither.

        This never rejects a write: an object that cannot be tracked, because it does not fit the schema or the schema
        of another version in which a manager owns fields, is stored without managedFields. Raises ConversionPending
        and then leaves ``new`` unchanged (see :meth:`run_with_conversions`).
        """
        metadata = new["metadata"]
        sent_managers = metadata.pop("managedFields", None)
        tracked = _with_sent_lists(new, sent)
        spec = new.get("spec")
        sent_spec = sent.get("spec")
        if isinstance(spec, dict) and isinstance(sent_spec, dict):
            tracked_spec = _with_sent_lists(spec, sent_spec)
            if tracked_spec is not spec:
                tracked = {**tracked, "spec": tracked_spec}
        try:
            entries = self._track(old, tracked, sent_managers, manager, now)
        except ConversionPending:
            metadata["managedFields"] = sent_managers
            raise
        if entries:
            metadata["managedFields"] = entries

    def _track(
        self, old: Mapping[str, Any] | None, new: Object, sent: Any, manager: str, now: str
    ) -> list[dict[str, Any]]:
        stored = (old or {}).get("metadata", {}).get("managedFields")
        try:
            managers, times = self._initial_managers(stored, sent)
            if managers or old is None:
                live = _without_managers(old) if old is not None else self._empty()
                managers, times = self._update(live, new, managers, times, manager, now)
        except (TypeMismatch, ConversionFailed, InvalidFields, RecursionError):
            return []
        return encode_managers(managers, times)

    def _initial_managers(self, stored: Any, sent: Any) -> tuple[Managers, Times]:
        """Return the managers before a write: those the client sent, if they can be decoded, else the stored ones."""
        if not self._subresource:
            if is_reset(sent):
                return {}, {}
            try:
                managers, times = decode_managers(sent)
                if managers:
                    return managers, times
            except (InvalidFields, AttributeError, TypeError):
                pass
        try:
            return decode_managers(stored)
        except InvalidFields:
            return {}, {}

    def _empty(self) -> Object:
        return {"apiVersion": self._api_version, "kind": self._kind_name, **self._kind.zero}

    def _update(
        self,
        live: Mapping[str, Any],
        new: Mapping[str, Any],
        managers: Managers,
        times: Times,
        manager: str,
        now: str,
    ) -> tuple[Managers, Times]:
        managers = self._updater.update(live, new, self._api_version, managers, _CURRENT_OPERATION)
        operation = managers.pop(_CURRENT_OPERATION, None)
        fields = operation.fields - _NEVER_OWNED if operation is not None else None
        if fields:
            own_id = ManagerId(manager or "unknown", UPDATE, self._api_version, self._subresource)
            before = managers.get(own_id)
            if before:
                fields = fields | before.fields
            managers[own_id] = OwnedFields(fields, self._api_version, applied=False)
            times = {**times, own_id: now}
        return _cap(managers, times)

    def _check_live(self, live: Mapping[str, Any], current: Mapping[str, Any]) -> None:
        """Raise StatusError (500) if the stored object, which has no owners of fields yet, does not fit the schema."""
        try:
            validate(self._kind.root, dict(current))
        except TypeMismatch as error:
            raise plain_error(
                "failed to create manager for existing fields: "
                f"failed to convert new object ({self._describe(live)}) to smd typed: {error}"
            ) from error

    def apply(
        self,
        live: Mapping[str, Any] | None,
        applied: Object,
        *,
        manager: str,
        force: bool,
        now: str,
    ) -> Object:
        """Return the object after ``applied`` was applied to ``live`` (``None``: created), with its managedFields.

        The result shares nothing with the arguments. It is not decoded yet: it has no defaults and can contain nulls.
        Raises StatusError: 400 when ``applied`` is not an object of this kind, 409 for conflicts, 500 when the body
        does not fit the schema, as in kube-apiserver.
        """
        self.check_kind(applied)
        metadata = applied.get("metadata")
        if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        try:
            managers, times = decode_managers((live or {}).get("metadata", {}).get("managedFields"))
        except InvalidFields as error:
            raise plain_error(f"failed to decode managed fields: {error}") from error
        current = _without_managers(live) if live is not None else self._empty()
        try:
            if live is not None and not managers:
                self._check_live(live, current)
            if not managers:
                managers, times = self._update(
                    self._empty(), current, managers, times, BEFORE_FIRST_APPLY, now
                )
        except (TypeMismatch, ConversionFailed) as error:
            raise plain_error(f"failed to create manager for existing fields: {error}") from error
        try:
            validate(self._kind.root, applied)
        except TypeMismatch as error:
            raise plain_error(
                f"failed to create typed patch object ({self._describe(applied)}): {error}"
            ) from error
        try:
            result, managers = self._apply(current, applied, managers, manager, force=force)
        except (TypeMismatch, ConversionFailed) as error:
            raise plain_error(str(error)) from error
        own_id = ManagerId(manager or "unknown", APPLY, "", self._subresource)
        if result is ABSENT:
            result = current
        else:
            times = {**times, own_id: now}
        obj: Object = _deep_copy(result)
        if manager == "kubectl" and _last_applied(obj):
            obj["metadata"]["annotations"][LAST_APPLIED] = _last_applied_annotation(applied)
        if managers:
            obj.setdefault("metadata", {})["managedFields"] = encode_managers(managers, times)
        return obj

    def check_kind(self, applied: Mapping[str, Any]) -> None:
        """Raise StatusError (400) if a configuration has another kind or version."""
        version = applied.get("apiVersion") or ""
        kind = applied.get("kind") or ""
        if version == self._api_version and kind == self._kind_name:
            return
        raise bad_request(
            f"invalid object type: {_format_group_version(str(version))}, Kind={kind}"
        )

    def _describe(self, obj: Mapping[str, Any]) -> str:
        return (
            f"{full_name(obj)}; {_format_group_version(self._api_version)}, Kind={self._kind_name}"
        )

    def _apply(
        self,
        live: Mapping[str, Any],
        applied: Object,
        managers: Managers,
        manager: str,
        *,
        force: bool,
    ) -> tuple[Any, Managers]:
        own_id = ManagerId(manager or "unknown", APPLY, "", self._subresource)
        try:
            result, after = self._updater.apply(
                live, applied, self._api_version, dict(managers), own_id, force=force
            )
        except Conflicts as conflicts:
            if manager != "kubectl":
                raise _conflict_status(conflicts.by_manager) from conflicts
            remaining = self._without_last_applied(live, conflicts)
            if remaining:
                raise _conflict_status(remaining) from conflicts
            result, after = self._updater.apply(
                live, applied, self._api_version, dict(managers), own_id, force=True
            )
        if own_id in after:
            fields = after[own_id].fields - _NEVER_OWNED
            if fields:
                after[own_id] = after[own_id]._replace(fields=fields)
            else:
                del after[own_id]
        return result, after

    def _without_last_applied(
        self, live: Mapping[str, Any], conflicts: Conflicts
    ) -> dict[ManagerId, list[Path]]:
        """Return the conflicts without unchanged fields that kubectl itself set last, by client-side apply."""
        try:
            last = orjson.loads(_last_applied(live))
            if not isinstance(last, dict) or last.get("apiVersion") != self._api_version:
                return conflicts.by_manager
            root = self._kind.root
            validate(root, last)
            change = compare(root, last, live)
            unchanged = field_set(root, last) - change.modified - change.added - change.removed
        except (ValueError, TypeMismatch):
            return conflicts.by_manager
        remaining = {}
        for manager, paths in conflicts.by_manager.items():
            changed = [path for path in paths if not unchanged.has(path)]
            if changed:
                remaining[manager] = changed
        return remaining


def _set_api_version(obj: Mapping[str, Any], api_version: str) -> Mapping[str, Any]:
    return {**obj, "apiVersion": api_version}


def _without_managers(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {
        **obj,
        "metadata": {name: value for name, value in metadata.items() if name != "managedFields"},
    }


def _format_group_version(api_version: str) -> str:
    """Format a version as Go prints a GroupVersion with its kind: ``apps/v1``, and ``/v1`` for the core group."""
    return api_version if "/" in api_version else f"/{api_version}"


def _last_applied(obj: Mapping[str, Any]) -> str:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    return annotations.get(LAST_APPLIED) or ""


def _last_applied_annotation(applied: Object) -> str:
    kept = _deep_copy(applied)
    annotations = kept.get("metadata", {}).get("annotations")
    if annotations:
        annotations.pop(LAST_APPLIED, None)
        if not annotations:
            del kept["metadata"]["annotations"]
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()


def _cap(managers: Managers, times: Times) -> tuple[Managers, Times]:
    """Merge the oldest update managers of each version into one when there are too many."""
    updaters = [manager for manager, owned in managers.items() if not owned.applied]
    count = len(updaters)
    if count <= MAX_UPDATERS:
        return managers, times
    managers = dict(managers)
    times = dict(times)
    first: dict[str, ManagerId] = {}
    for manager in sorted(updaters, key=lambda manager: (times.get(manager, ""), manager)):
        if count <= MAX_UPDATERS:
            break
        owned = managers[manager]
        version = owned.api_version
        if version not in first:
            first[version] = manager
            continue
        bucket = ManagerId(ANCIENT_CHANGES, UPDATE, version)
        if bucket not in managers:
            managers[bucket] = managers.pop(first[version])
        managers[bucket] = owned._replace(fields=owned.fields | managers[bucket].fields)
        del managers[manager]
        count -= 1
        if manager in times:
            times[bucket] = times[manager]
    return managers, times


def _format_manager(manager: ManagerId) -> str:
    text = orjson.dumps(manager.manager).decode()
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    return f"{text} using {manager.api_version}" if manager.operation == UPDATE else text


def _conflict_order(manager: ManagerId) -> tuple[str, str, str, bool, str]:
    return (
        manager.manager,
        manager.operation,
        manager.api_version,
        not manager.subresource,
        manager.subresource,
    )


def _conflict_status(by_manager: Mapping[ManagerId, list[Path]]) -> StatusError:
    # kube-apiserver sorts managers by their JSON, in which a subresource follows the other fields
    managers = sorted(by_manager, key=_conflict_order)
    causes = [
        (f"conflict with {_format_manager(manager)}", format_path(path))
        for manager in managers
        for path in by_manager[manager]
    ]
    if len(causes) == 1:
        return apply_conflict(
            f"Apply failed with 1 conflict: {causes[0][0]}: {causes[0][1]}", causes
        )
    lines = []
    for manager in managers:
        lines.append(f"conflicts with {_format_manager(manager)}:")
        lines += [f"- {format_path(path)}" for path in by_manager[manager]]
    return apply_conflict(f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines), causes)
