"""Tests for the objects of a kind that are enqueued together."""

from __future__ import annotations

from typing import cast

import pytest

from cfo.controllers.left_out import all_keys, known_keys
from cfo.runtime import Informer, NamespacedName, Reader
from cfo.runtime.cache.entry import Entry

LEFT_OUT = NamespacedName("ns", "large")


class CrowdedReader(Reader):
    """A reader that stores nothing and leaves out one object that it knows, and perhaps others."""

    def __init__(self, *, has_all: bool) -> None:
        self.has_all = has_all

    def entries(self, *_: object, **__: object) -> list[Entry]:
        return []

    def left_out_keys(self, namespace: str = "", /) -> list[NamespacedName]:
        return [LEFT_OUT] if namespace in ("", "ns") else []

    def has_all_left_out_keys(self, namespace: str = "", /) -> bool:
        return self.has_all or namespace not in ("", "ns")


class CountingInformer:
    """The part of an informer that the functions use."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.reports = 0

    def report_left_out(self) -> None:
        self.reports += 1


@pytest.mark.parametrize(
    ("has_all", "namespace", "reports"),
    [(True, "", 0), (False, "", 1), (False, "ns", 1), (False, "other", 0)],
)
def test_list_is_needed_only_for_objects_that_are_not_known_by_name(
    has_all: bool,
    namespace: str,
    reports: int,
) -> None:
    informer = CountingInformer(CrowdedReader(has_all=has_all))
    expected = [] if namespace == "other" else [LEFT_OUT]
    assert known_keys(informer.reader, namespace) == expected
    assert informer.reports == 0
    assert all_keys(cast("Informer", informer), namespace) == expected
    assert informer.reports == reports
