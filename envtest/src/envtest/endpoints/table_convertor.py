"""Converts objects to Tables: rows of cells, the form that ``kubectl get`` requests.

The columns of custom resources are their ``additionalPrinterColumns``; the columns of built-in kinds are in
:mod:`envtest.printers`. A kind without columns shows its name and creation time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from envtest.apimachinery.objects import Object
from envtest.endpoints.partial_metadata import partial_metadata
from envtest.formats import jsonpath
from envtest.formats.go_format import go_text
from envtest.printers import PRINTERS
from envtest.printers.columns import AGE, NAME, Column, RowFunction, age
from envtest.registry.resource import ResourceInfo

__all__ = ["convert_to_table"]

_CREATED_AT: Final = Column("Created At", AGE.description, "date")
_DEFAULT_CRD_COLUMNS: Final = (
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


def convert_to_table(
    info: ResourceInfo,
    objects: Sequence[Object],
    *,
    version: str = "v1",
    include: str = "Metadata",
    metadata: Mapping[str, Any] | None = None,
    headers: bool = True,
    now: datetime | None = None,
) -> Object:
    """Return the ``Table`` of ``objects`` of one resource.

    ``version`` is the version of the group ``meta.k8s.io``. ``include`` selects the object of each row: ``Metadata`` (a
    PartialObjectMetadata), ``Object`` or ``None``. ``metadata`` is the metadata of the list. Without ``headers`` the
    columns are null, as in all watch events except the first. Ages are relative to ``now``.
    """
    moment = now or datetime.now(UTC)
    columns, cells = _printer(info)
    rows: list[Object] = []
    for obj in objects:
        row: Object = {"cells": cells(obj, moment)}
        conditions = _conditions(info, obj)
        if conditions:
            row["conditions"] = conditions
        row["object"] = _included(obj, include, version)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {name: value for name, value in (metadata or {}).items() if value != ""},
        "columnDefinitions": [column.definition() for column in columns] if headers else None,
        # of kinds without columns, kube-apiserver collects the rows in a list that it does not create before
        "rows": rows if rows or info.is_crd or (info.group, info.kind) in PRINTERS else None,
    }


def _included(obj: Object, include: str, version: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return partial_metadata(obj, version)


def _printer(info: ResourceInfo) -> tuple[Sequence[Column], RowFunction]:
    if info.is_crd:
        return _custom_printer(info)
    return PRINTERS.get((info.group, info.kind)) or ((NAME, _CREATED_AT), _created_at)


def _created_at(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"].get("name", ""), obj["metadata"].get("creationTimestamp", "")]


def _conditions(info: ResourceInfo, obj: Object) -> list[Object]:
    """Return the row conditions that let ``kubectl`` mark rows: completed and failed pods."""
    if info.kind != "Pod" or info.group:
        return []
    phase = (obj.get("status") or {}).get("phase")
    texts = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
    if phase not in texts:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": texts[phase]}]


def _custom_printer(info: ResourceInfo) -> tuple[Sequence[Column], RowFunction]:
    specs = list(info.columns) or list(_DEFAULT_CRD_COLUMNS)
    columns = [NAME]
    for spec in specs:
        path = spec.get("jsonPath", "")
        text = (
            spec.get("description")
            or f"Custom resource definition column (in JSONPath format): {path}"
        )
        if spec in _DEFAULT_CRD_COLUMNS:
            text = AGE.description
        columns.append(
            Column(
                spec["name"],
                text,
                spec.get("type", "string"),
                spec.get("priority", 0),
                spec.get("format", ""),
            )
        )

    def cells(obj: Object, now: datetime) -> list[Any]:
        found = [
            _custom_cell(spec.get("jsonPath", ""), spec.get("type", ""), obj, now) for spec in specs
        ]
        return [obj["metadata"].get("name", ""), *found]

    return columns, cells


def _custom_cell(path: str, kind: str, obj: Object, now: datetime) -> Any:
    """Return the cell of a column; ``None`` if the path finds nothing or a value of another type."""
    try:
        found = jsonpath.find(path, obj)
    except jsonpath.InvalidPath:
        return None
    if not found:
        return None
    value = found[0]
    if kind == "string":
        if isinstance(value, dict | list):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
        return go_text(value) if value is not None else "<no value>"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return int(value) if is_number else None
    if kind == "number":
        return float(value) if is_number else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "date" and isinstance(value, str):
        return age(value, now) if not value or _is_time(value) else "<invalid>"
    return None


def _is_time(text: str) -> bool:
    return (
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text) is not None
    )
