"""Rejects conversions of text outside of the bounded parsers.

    python -m hack.conversions

``datetime.fromisoformat()``, ``Decimal()``, ``int()`` and ``float()`` accept text of any length, and callers do not
expect what they raise. Text of objects is parsed by :mod:`cfo.runtime.objects.parsers`. Allowed are arguments that are
certainly numbers, the fields in :data:`INTEGERS`, and the files in :data:`ALLOWED`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from typing import Final

from hack import ROOT

CONVERSIONS: Final = frozenset({"int", "float", "Decimal", "fromisoformat"})
NUMBERS: Final = frozenset(
    {
        "len",
        "round",
        "abs",
        "max",
        "min",
        "sum",
        "bool",
        "total_seconds",
        "timestamp",
        "to_integral_value",
        "time",
    }
)
"""Functions that return numbers."""
INTEGERS: Final = frozenset(
    {
        "generation",
        "observedGeneration",
        "replicas",
        "readyReplicas",
        "updatedReplicas",
        "availableReplicas",
        "ready",
    }
    | {
        "succeeded",
        "parallelism",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "value",
        "minSize",
        "maxSize",
    }
    | {"maximumSize", "minReplicas", "maxReplicas", "numOfHosts", "enginePort"}
)
"""Fields that the schemas of all their kinds declare as integers."""

_DIGITS: Final = "the lines before accept a few digits only"
_DECLARED: Final = "an integer in the schema of the CRD"
_NUMBER: Final = "already a number"
_OWN: Final = "not text of an object"
ALLOWED: Final = {
    "cfo/api/appwrapper/paths.py": _DIGITS,
    "cfo/api/appwrapper/podsets.py": _DECLARED,
    "cfo/api/inferencestack/validation/pods.py": _DIGITS,
    "cfo/api/pod_requests.py": _NUMBER,
    "cfo/api/quantity.py": _NUMBER,
    "cfo/api/raycluster/ports.py": _DIGITS,
    "cfo/api/reading.py": _NUMBER,
    "cfo/config/endpoints.py": "the administrator's configuration",
    "cfo/config/model.py": "the administrator's configuration",
    "cfo/dashboard/in_cluster.py": _OWN,
    "cfo/console/demo/raycluster_nodes.py": _DECLARED,
    "cfo/checks/components.py": _DIGITS,
    "cfo/console/migrate/raycluster/injected.py": _DIGITS,
    "cfo/controllers/flux/minicluster/job_changes.py": _DIGITS,
    "cfo/api/flux/facts.py": _DECLARED,
    "cfo/controllers/flux/minicluster/plan.py": _DECLARED,
    "cfo/controllers/flux/minicluster/pods.py": _DECLARED,
    "cfo/controllers/flux/minicluster/resources.py": _DECLARED,
    "cfo/controllers/flux/minicluster/status.py": "an exit code of a pod",
    "cfo/controllers/flux/queue/governance.py": _DECLARED,
    "cfo/controllers/flux/queue/records.py": _DECLARED,
    "cfo/controllers/inferencestack/claims.py": "names v0 to v999999",
    "cfo/controllers/inferencestack/rendering/config_file.py": _NUMBER,
    "cfo/controllers/inferencestack/rendering/facts.py": _DIGITS,
    "cfo/controllers/inferencestack/rendering/gateway.py": "a port, which validation has parsed",
    "cfo/controllers/inferencestack/status.py": _DECLARED,
    "cfo/controllers/raycluster/node_request.py": "an address",
    "cfo/runtime/cache/entry.py": "a version that the API server assigns",
    "cfo/runtime/cache/selectors.py": "a label's value, of at most 63 characters",
    "cfo/runtime/client/credential_expiry.py": "output of the user's own plugin",
    "cfo/runtime/client/ratelimit.py": _OWN,
    "cfo/runtime/client/transport.py": "headers and Status of the API server",
    "cfo/runtime/controller/metrics.py": _OWN,
    "cfo/runtime/manager/leaderelection.py": _NUMBER,
    "cfo/runtime/objects/field.py": _NUMBER,
    "cfo/runtime/objects/parsers.py": "the parsers",
    "cfo/runtime/process/endpoint.py": "the administrator's configuration",
    "cfo/runtime/process/memory.py": "a file of the kernel",
    "handlers/src/cfo_handlers/background.py": "what a function of the operator's author returns",
}
"""Files that convert what may be text, and why they may."""


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and code of each conversion of what may be text."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if _function_name(node) in CONVERSIONS and not _is_number(node.args[0]):
            yield node.lineno, ast.unparse(node)


def _function_name(call: ast.Call) -> str:
    """Return the name of the function or method that ``call`` calls."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.BoolOp():
            # The first operand may be missing, and the last one is the default.
            return all(_is_number(operand) for operand in node.values)
        case ast.Constant() | ast.Compare():
            return True
        case ast.Name():
            return node.id.isupper()
        case ast.Subscript():
            return _is_integer_key(node.slice)
        case ast.UnaryOp() | ast.BinOp():
            return not isinstance(node.op, ast.Mod)
        case ast.Call():
            name = _function_name(node)
            if name in NUMBERS:
                return True
            return name == "get" and bool(node.args) and _is_integer_key(node.args[0])
    return False


def _is_integer_key(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in INTEGERS


def main() -> None:
    """Print the findings; exit with 1 if there are any."""
    failed = False
    sources = [*(ROOT / "cfo").rglob("*.py"), *(ROOT / "handlers" / "src").rglob("*.py")]
    for path in sorted(sources):
        name = str(path.relative_to(ROOT))
        if name in ALLOWED:
            continue
        for line, code in findings(path.read_text()):
            print(f"{name}:{line}: {code}: use cfo.runtime.objects.parsers")
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
