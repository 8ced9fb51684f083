"""The undo file: the objects before the first change, and what the migration made of them.

It is a JSON document, and only its owner can read it. Secrets are in it without their content: the operator creates
them again. A file that exists is extended, so that after an interruption it still has the first state of each object.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cfo.console.migrate.steps import Action, ObjectPlan
from cfo.runtime import Object, uid_of

MAX_BYTES: Final = 512 << 20
"""The maximum size of an undo file."""

_FORMAT: Final = "cfo-migrate-undo/v1"


class InvalidUndoFile(ValueError):
    """The file is not an undo file of this cluster; the message is one line."""


@dataclass(slots=True)
class Record:
    """One object: its state ``before`` the migration and ``after`` it; ``after`` is ``None`` if it is deleted."""

    before: Object
    after: Object | None


@dataclass(slots=True)
class UndoFile:
    """The records of one file, by the uid of their objects, in the order in which they were first changed.

    ``identity`` identifies the Kubernetes cluster.
    """

    path: Path
    identity: str
    target: str
    records: dict[str, Record] = field(default_factory=dict)

    def record(self, plan: ObjectPlan) -> None:
        """Add the objects that the steps of ``plan`` change, and write the file. Raises :class:`OSError`."""
        changed = False
        for before, after in _results(plan):
            known = self.records.get(uid_of(before))
            if known is None:
                self.records[uid_of(before)] = Record(before, after)
                changed = True
            elif known.after != after:
                known.after = after
                changed = True
        if changed:
            self._write()

    def _write(self) -> None:
        """Replace the file; a crash leaves either the old or the new content."""
        document = {
            "format": _FORMAT,
            "cluster": self.identity,
            "target": self.target,
            "objects": [{"before": record.before, "after": record.after} for record in self.records.values()],
        }
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)


def _results(plan: ObjectPlan) -> Iterable[tuple[Object, Object | None]]:
    """Return each object that ``plan`` changes, with its final state."""
    before: dict[str, Object] = {}
    after: dict[str, Object | None] = {}
    for step in plan.steps:
        uid = uid_of(step.object)
        before.setdefault(uid, step.object)
        current = after.get(uid, step.object)
        if step.action is Action.DELETE:
            after[uid] = None
        elif step.action in (Action.UPDATE, Action.RELEASE) and step.change is not None and current is not None:
            after[uid] = step.change(current)
    return [(deepcopy(before[uid]), after[uid]) for uid in after]


def load(path: Path) -> UndoFile:
    """Return the undo file at ``path``. Raises :class:`InvalidUndoFile` and :class:`OSError`."""
    if path.stat().st_size > MAX_BYTES:
        raise InvalidUndoFile(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    try:
        document: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InvalidUndoFile(f"{path}: not a JSON document") from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise InvalidUndoFile(f"{path}: not an undo file of cfo migrate")
    result = UndoFile(path, str(document.get("cluster")), str(document.get("target")))
    items = document.get("objects")
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict) or not _is_object(item.get("before")):
            raise InvalidUndoFile(f"{path}: an object has no kind, name or uid")
        if item.get("after") is not None and not _is_object(item["after"]):
            raise InvalidUndoFile(f"{path}: an object has no kind, name or uid")
        result.records[uid_of(item["before"])] = Record(item["before"], item.get("after"))
    return result


def _is_object(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        return False
    metadata = value["metadata"]
    values = (value.get("apiVersion"), value.get("kind"), metadata.get("name"), metadata.get("uid"))
    return all(isinstance(item, str) and item for item in values)
