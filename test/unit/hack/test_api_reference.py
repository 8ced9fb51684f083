"""The API reference has an entry, with a docstring, for each public name."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

import cfo.runtime
import envtest
from hack import ROOT
from hack.api_reference import FOLDER, pages

PACKAGES = sorted(path.parent.name for path in (ROOT / "cfo" / "runtime").glob("*/__init__.pyi"))


def test_each_package_has_a_page_in_the_navigation() -> None:
    assert set(pages()) == {
        f"{FOLDER}/{name}.md" for name in (*PACKAGES, "envtest", "cfo_handlers")
    }
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    assert [path for path in pages() if f": {path}\n" not in navigation] == []


@pytest.mark.parametrize("package", [*(f"cfo.runtime.{name}" for name in PACKAGES), "cfo_handlers"])
def test_each_public_name_has_an_entry_where_it_is_defined(package: str) -> None:
    module = import_module(package)
    entries = [
        line[4:]
        for line in pages()[f"{FOLDER}/{package.rpartition('.')[2]}.md"].splitlines()
        if line.startswith("::: ")
    ]
    found = {entry.rpartition(".")[2]: entry for entry in entries}
    assert len(entries) == len(set(entries))
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.ismodule(value):  # such as field, whose functions have entries
            assert any(entry.startswith(f"{value.__name__}.") for entry in entries), name
            continue
        defining, _, _ = found[name].rpartition(".")
        assert getattr(import_module(defining), name) is value
        if getattr(value, "__module__", "") == defining:  # no alias of another type
            assert value.__doc__, found[name]


def test_names_of_the_library_and_of_envtest_have_entries() -> None:
    entries = {line.rpartition(".")[2] for page in pages().values() for line in page.splitlines()}
    modules = {name for name in cfo.runtime.__all__ if inspect.ismodule(getattr(cfo.runtime, name))}
    assert set(cfo.runtime.__all__) - modules <= entries
    assert (
        "\n::: envtest\n" in pages()[f"{FOLDER}/envtest.md"]
    )  # an entry for each name in its __all__
    assert all(inspect.getdoc(getattr(envtest, name)) for name in envtest.__all__)
