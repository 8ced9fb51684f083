"""There are no import cycles in cfo, not even for types or inside a function, and no imports between tests."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_modules_have_no_import_cycle() -> None:
    graph = grimp.build_graph("cfo", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_test_modules_import_no_other_test_module() -> None:
    """What two of them need is in ``test.support``; otherwise, running one file depends on others."""
    graph = grimp.build_graph("test", cache_dir=None)
    tests = {module for module in graph.modules if module.rpartition(".")[2].startswith("test_")}
    importers = {module: graph.find_modules_that_directly_import(module) for module in tests}
    assert {module: found for module, found in importers.items() if found} == {}
