"""Tests of the drawings in ``docs/architecture.md``."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from hack import ways
from hack.files import ToolError
from hack.generate import drawings


@pytest.mark.parametrize("drawing", [drawings.house(), drawings.ways()], ids=["house", "ways"])
def test_drawing_is_well_formed_and_text_is_inside(drawing: str) -> None:
    root = ElementTree.fromstring(drawing)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        half = text.attrib["text-anchor"] == "middle"
        assert x + len(text.text or "") * (3.3 if half else 6.6) <= width, text.text
        assert y <= height, text.text


def test_house_has_every_kind_on_each_of_its_floors() -> None:
    house = drawings.house()
    for kind in drawings.kinds():
        assert house.count(f">{kind}<") >= 5, kind  # cfo.checks is optional


def test_room_without_purpose_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(drawings._PURPOSES, "cfo.operator")
    with pytest.raises(ToolError, match=r"no purpose of cfo\.operator"):
        drawings.house()


def test_purpose_of_a_room_that_left_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(drawings._PURPOSES, "cfo.attic", "old things")
    with pytest.raises(ToolError, match=r"not in an import contract: cfo\.attic"):
        drawings.house()


def test_module_of_a_way_without_text_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(drawings._STEPS, "cfo.runtime.cache.store")
    with pytest.raises(
        ToolError, match=r"does not say what they do .*: cfo\.runtime\.cache\.store"
    ):
        drawings.ways()


def test_text_of_a_module_that_left_the_ways_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(drawings._STEPS, "cfo.runtime.cache.magic", "text")
    with pytest.raises(
        ToolError, match=r"but not hack/generate/ways\.json: cfo\.runtime\.cache\.magic"
    ):
        drawings.ways()


def test_ways_have_a_row_for_each_module_that_was_entered() -> None:
    drawing = drawings.ways()
    for modules in ways.read().values():
        for number, module in enumerate(modules, start=1):
            assert f">{number}<" in drawing
            assert f">{module.rpartition('.')[2]}<" in drawing
