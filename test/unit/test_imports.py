"""No two modules import each other, not even for types or inside a function."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

ACCEPTED = {
    # apiserver has the same triangle: requests refer to resources, resources to strategies, strategies to requests
    "envtest": {("envtest.context", "envtest.registry"), ("envtest.strategy", "envtest.context")},
    "cfo": set(),
}
"""Imports that a cycle may contain, because they are for types only."""


@pytest.mark.parametrize("distribution", ACCEPTED)
def test_modules_have_no_import_cycle(distribution: str) -> None:
    graph = grimp.build_graph(distribution, cache_dir=None)
    imports = {
        module: {
            imported
            for imported in graph.find_modules_directly_imported_by(module)
            if (module, imported) not in ACCEPTED[distribution]
        }
        for module in graph.modules
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
