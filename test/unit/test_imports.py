"""What importing a module of cfo imports: no cycles, and nothing of features that are disabled."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import Final

import grimp
import pytest

_PROGRAM: Final = """
import json, os, sys
import cfo.features

def print_imported():
    print(json.dumps(sorted(name for name in sys.modules if name.startswith("cfo."))), flush=True)

print_imported()
from cfo.config.model import OperatorConfiguration
from cfo.operator import new_manager
from cfo.runtime import ClientConfig
for configuration in sys.argv[1:]:
    pid = os.fork()
    if not pid:
        parsed = OperatorConfiguration.from_document(json.loads(configuration))
        new_manager(ClientConfig(server="https://localhost"), parsed, "ns")
        print_imported()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
"""Prints what cfo.features imports, and then what an operator imports with each configuration, in its own process."""

_ALL: Final = {
    "kuberay": {"enabled": True},
    "appwrapper": {"enabled": True},
    "flux": {"enabled": True},
    "inferenceStack": {"enabled": True, "operatorVersion": "v2"},
    "metrics": {"dashboard": True, "secureServing": True},
}
"""A configuration with all features that can be disabled."""


_LIBRARY: Final = (
    "cfo.runtime.objects",
    "cfo.runtime.client",
    "cfo.runtime.cache",
    "cfo.runtime.controller",
)
"""The packages of the library that everything else of it needs; ``cfo.runtime.process`` is cheap."""


_SECTIONS: Final = {
    "kuberay": "cfo.controllers.raycluster",
    "appwrapper": "cfo.controllers.appwrapper",
    "flux": "cfo.controllers.flux",
    "inferenceStack": "cfo.controllers.inferencestack",
    "metrics": "cfo.dashboard",
}
"""The package of each feature that can be disabled, by its section in the configuration."""


@cache
def imported() -> dict[str, list[str]]:
    """Return the modules of ``cfo`` that are imported with all features (``all``), and without that of a section.

    Those that the declarations of the features import have the key ``features``.
    """
    configurations = {"all": _ALL}
    for section in _SECTIONS:
        configurations[section] = {
            **_ALL,
            section: {} if section == "metrics" else {"enabled": False},
        }
    arguments = [json.dumps(configuration) for configuration in configurations.values()]
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("[")]
    return dict(zip(("features", *configurations), lines, strict=True))


@pytest.mark.parametrize("package", ["cfo", "cfo_handlers"])
def test_modules_have_no_import_cycle(package: str) -> None:
    graph = grimp.build_graph(package, cache_dir=None)
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


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import cfo.cli", (*_LIBRARY, "cfo.config", "cfo.features", "aiohttp", "anyio", "yaml")),
        ("import cfo.manifests.stack", (*_LIBRARY, "cfo.config", "cfo.features", "aiohttp")),
        (
            "import cfo.console.doctor.doctor_command",
            ("cfo.config", "cfo.features", "cfo.operator", "aiohttp"),
        ),
        (
            "import cfo.console.status_command, cfo.features; cfo.features.all_views()",
            (
                "cfo.config",
                "cfo.controllers",
                "cfo.operator",
                "cfo.runtime.manager",
                "cfo.webhooks",
                "pydantic",
            ),
        ),
    ],
)
def test_commands_import_nothing_heavy(statement: str, heavy: tuple[str, ...]) -> None:
    program = (
        f"import sys; {statement}; print(*(name for name in {heavy!r} if name in sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []


def test_features_import_nothing_heavy() -> None:
    heavy = (
        "cfo.checks",
        "cfo.config",
        "cfo.console",
        "cfo.controllers",
        "cfo.dashboard",
        "cfo.manifests",
        "cfo.operator",
        "cfo.runtime.manager",
        "cfo.summaries",
        "cfo.webhooks",
    )
    found = imported()["features"]
    assert [name for name in found if name.startswith(heavy)] == []
    assert [name for name in found if name.startswith("cfo.api") and "models" in name] == []
    assert "cfo.features.raycluster" in found


@pytest.mark.parametrize(("section", "package"), _SECTIONS.items())
def test_disabled_feature_is_not_imported(section: str, package: str) -> None:
    assert package in imported()["all"]
    assert [name for name in imported()[section] if name.startswith(package)] == []
