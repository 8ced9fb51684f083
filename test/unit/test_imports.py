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
import sys
import cfo.features
found = {name for name in sys.modules if name.startswith("cfo.")}
from cfo.config.model import OperatorConfiguration
from cfo.operator import new_manager
from cfo.runtime import ClientConfig
import json
if len(sys.argv) > 1:
    new_manager(ClientConfig(server="https://localhost"), OperatorConfiguration.model_validate_json(sys.argv[1]), "ns")
    found = {name for name in sys.modules if name.startswith("cfo.")}
print(json.dumps(sorted(found)))
"""
_ALL: Final = {
    "kuberay": {"enabled": True},
    "appwrapper": {"enabled": True},
    "flux": {"enabled": True},
    "inferenceStack": {"enabled": True, "operatorVersion": "v2"},
    "metrics": {"dashboard": True, "secureServing": True},
}
"""A configuration with all features that can be disabled."""


@cache
def imported(*arguments: str) -> list[str]:
    result = subprocess.run([sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return list(json.loads(result.stdout.splitlines()[-1]))


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


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import cfo.cli", ("cfo.runtime", "cfo.config", "cfo.features", "aiohttp", "anyio", "yaml")),
        ("import cfo.manifests.stack", ("cfo.runtime", "cfo.config", "cfo.features", "aiohttp")),
        ("import cfo.console.doctor.doctor_command", ("cfo.config", "cfo.features", "cfo.operator", "aiohttp")),
        (
            "import cfo.console.status_command, cfo.features; cfo.features.all_views()",
            ("cfo.config", "cfo.controllers", "cfo.operator", "cfo.runtime.manager", "cfo.webhooks", "pydantic"),
        ),
    ],
)
def test_commands_import_nothing_heavy(statement: str, heavy: tuple[str, ...]) -> None:
    program = f"import sys; {statement}; print(*(name for name in {heavy!r} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_features_import_nothing_heavy() -> None:
    heavy = (
        *("cfo.config", "cfo.controllers", "cfo.webhooks", "cfo.console", "cfo.manifests", "cfo.operator"),
        "cfo.runtime.manager",
    )
    found = imported()
    assert [name for name in found if name.startswith(heavy) or "models" in name] == []
    assert "cfo.features.raycluster" in found


@pytest.mark.parametrize(
    ("section", "package"),
    [
        ("kuberay", "cfo.controllers.raycluster"),
        ("appwrapper", "cfo.controllers.appwrapper"),
        ("flux", "cfo.controllers.flux"),
        ("inferenceStack", "cfo.controllers.inferencestack"),
        ("metrics", "cfo.console.dashboard"),
    ],
)
def test_disabled_feature_is_not_imported(section: str, package: str) -> None:
    disabled = {} if section == "metrics" else {"enabled": False}
    assert package in imported(json.dumps(_ALL))
    assert [name for name in imported(json.dumps({**_ALL, section: disabled})) if name.startswith(package)] == []
