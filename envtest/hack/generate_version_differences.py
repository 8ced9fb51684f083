"""Generate how the built-in kinds of older Kubernetes versions differ from the shipped types.

Run it in the folder ``envtest`` of the repository:

    python hack/generate_version_differences.py CLONE...

Each ``CLONE`` is a git repository with the tags ``v0.MINOR.0`` of k8s.io/api, k8s.io/apimachinery,
k8s.io/apiextensions-apiserver or k8s.io/kube-aggregator; all four are needed. Only facts are taken from the Go types:
names of types and fields, markers ``+featureGate``, and when API versions were introduced and removed.

For each version of ``VERSIONS`` the generator writes ``src/envtest/data/versions/VERSION.json``:

* ``resources``: the resources that the version does not serve;
* ``absent``: the fields that it does not have, by type;
* ``disabled``: the fields that it has, but drops, because the feature gate is off by default;
* ``added``: fields that it has and the shipped types do not have, and ``types``: types that only these fields use;
* ``changed``: all types that one of these differences changes, directly or in a nested type.

``hack/features.json`` contains the minor version since which each feature gate is on by default (empty: it is off in
all versions), from ``pkg/features/kube_features.go`` of Kubernetes and its page on feature gates, and the fields of
gates that have no marker.

``src/envtest/data/lifecycle.json`` lists the API versions of kinds that were removed or never served by default, with
the API version that replaces them.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from envtest.builtins.catalog import all_resources, resolve

DATA = Path(__file__).parents[1] / "src" / "envtest" / "data"
FEATURES: dict[str, Any] = json.loads(Path(__file__).with_name("features.json").read_text())
SHIPPED = "1.36"
VERSIONS = ("1.34", "1.35")
LIFECYCLE_VERSIONS = range(19, 37)
"""The minor versions whose lifecycle comments are read, from the first that has them.

An API version is deleted from the code some years after its removal.
"""

MODULES = {
    "io.k8s.api": "k8s.io/api",
    "io.k8s.apimachinery": "k8s.io/apimachinery",
    "io.k8s.apiextensions-apiserver": "k8s.io/apiextensions-apiserver",
    "io.k8s.kube-aggregator": "k8s.io/kube-aggregator",
}
SCALARS = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
}
EARLIER_REMOVALS: dict[str, dict[str, str]] = {
    "admissionregistration.k8s.io/v1alpha1 ExternalAdmissionHookConfiguration": {
        "introduced": "1.7",
        "removed": "1.9",
    },
    "admissionregistration.k8s.io/v1alpha1 InitializerConfiguration": {
        "introduced": "1.7",
        "removed": "1.14",
    },
    "apiextensions.k8s.io/v1beta1 CustomResourceDefinition": {
        "introduced": "1.7",
        "removed": "1.22",
        "replacement": "apiextensions.k8s.io/v1 CustomResourceDefinition",
    },
    "apiregistration.k8s.io/v1beta1 APIService": {
        "introduced": "1.7",
        "removed": "1.22",
        "replacement": "apiregistration.k8s.io/v1 APIService",
    },
    "auditregistration.k8s.io/v1alpha1 AuditSink": {"introduced": "1.13", "removed": "1.19"},
    "batch/v2alpha1 CronJob": {
        "introduced": "1.5",
        "removed": "1.21",
        "replacement": "batch/v1 CronJob",
    },
    "discovery.k8s.io/v1alpha1 EndpointSlice": {
        "introduced": "1.16",
        "removed": "1.21",
        "replacement": "discovery.k8s.io/v1 EndpointSlice",
    },
    "node.k8s.io/v1alpha1 RuntimeClass": {
        "introduced": "1.14",
        "replacement": "node.k8s.io/v1 RuntimeClass",
    },
    "rbac.authorization.k8s.io/v1alpha1 ClusterRole": {
        "introduced": "1.3",
        "removed": "1.22",
        "replacement": "rbac.authorization.k8s.io/v1 ClusterRole",
    },
    "rbac.authorization.k8s.io/v1alpha1 ClusterRoleBinding": {
        "introduced": "1.3",
        "removed": "1.22",
        "replacement": "rbac.authorization.k8s.io/v1 ClusterRoleBinding",
    },
    "rbac.authorization.k8s.io/v1alpha1 Role": {
        "introduced": "1.3",
        "removed": "1.22",
        "replacement": "rbac.authorization.k8s.io/v1 Role",
    },
    "rbac.authorization.k8s.io/v1alpha1 RoleBinding": {
        "introduced": "1.3",
        "removed": "1.22",
        "replacement": "rbac.authorization.k8s.io/v1 RoleBinding",
    },
    "resource.k8s.io/v1alpha1 PodScheduling": {"introduced": "1.26", "removed": "1.27"},
    "resource.k8s.io/v1alpha1 ResourceClaim": {
        "introduced": "1.26",
        "removed": "1.27",
        "replacement": "resource.k8s.io/v1 ResourceClaim",
    },
    "resource.k8s.io/v1alpha1 ResourceClaimTemplate": {
        "introduced": "1.26",
        "removed": "1.27",
        "replacement": "resource.k8s.io/v1 ResourceClaimTemplate",
    },
    "resource.k8s.io/v1alpha1 ResourceClass": {
        "introduced": "1.26",
        "removed": "1.27",
        "replacement": "resource.k8s.io/v1 DeviceClass",
    },
    "resource.k8s.io/v1alpha2 PodSchedulingContext": {"introduced": "1.27", "removed": "1.31"},
    "resource.k8s.io/v1alpha2 ResourceClaim": {
        "introduced": "1.27",
        "removed": "1.31",
        "replacement": "resource.k8s.io/v1 ResourceClaim",
    },
    "resource.k8s.io/v1alpha2 ResourceClaimTemplate": {
        "introduced": "1.27",
        "removed": "1.31",
        "replacement": "resource.k8s.io/v1 ResourceClaimTemplate",
    },
    "resource.k8s.io/v1alpha2 ResourceClaimParameters": {"introduced": "1.30", "removed": "1.31"},
    "resource.k8s.io/v1alpha2 ResourceClass": {
        "introduced": "1.27",
        "removed": "1.31",
        "replacement": "resource.k8s.io/v1 DeviceClass",
    },
    "resource.k8s.io/v1alpha2 ResourceClassParameters": {"introduced": "1.30", "removed": "1.31"},
    "resource.k8s.io/v1alpha2 ResourceSlice": {
        "introduced": "1.30",
        "removed": "1.31",
        "replacement": "resource.k8s.io/v1 ResourceSlice",
    },
    "resource.k8s.io/v1alpha3 PodSchedulingContext": {"introduced": "1.31", "removed": "1.32"},
    "scheduling.k8s.io/v1alpha1 PriorityClass": {
        "introduced": "1.8",
        "removed": "1.36",
        "replacement": "scheduling.k8s.io/v1 PriorityClass",
    },
    "scheduling.k8s.io/v1alpha1 Workload": {"introduced": "1.35", "removed": "1.36"},
    "settings.k8s.io/v1alpha1 PodPreset": {"introduced": "1.6", "removed": "1.20"},
}
"""API versions without a lifecycle comment in k8s.io/api.

The lifecycle comments of CRDs and APIServices are in other modules. The other versions were deleted before there were
comments, or are alpha versions without them: they were removed when their types were deleted from the code (and those
of RBAC when a comment of their types says so).
"""

_FIELD = re.compile(r"^\t(?:\w+)?\s*(?P<type>[\w.*\[\]]+)\s+`json:\"(?P<json>[^\"]*)\"")
_GATE = "// +featureGate="
_LIFECYCLE = re.compile(
    r"^func \(in \*(?P<kind>\w+)\) APILifecycle(?P<fact>Introduced|Removed|Replacement)\(\).*\{\n"
    r"\treturn (?P<value>.*)$",
    re.MULTILINE,
)
_KIND = re.compile(
    r'Group: "(?P<group>[^"]*)", Version: "(?P<version>[^"]*)", Kind: "(?P<kind>[^"]*)"'
)


class Field(NamedTuple):
    """A field of a Go struct: its Go type and its feature gates."""

    type: str
    gates: tuple[str, ...]


Structs = dict[str, dict[str, Field]]


def git(clone: Path, *arguments: str) -> str:
    """Return the output of git. Raises CalledProcessError."""
    return subprocess.run(
        ["git", "-C", clone, *arguments], capture_output=True, text=True, check=True
    ).stdout


class Sources:
    """The clones, by the path of their Go module."""

    def __init__(self, clones: list[Path]) -> None:
        self._clones = {self._module(clone): clone for clone in clones}
        if missing := sorted(set(MODULES.values()) - self._clones.keys()):
            sys.exit(f"no clone of {', '.join(missing)}")

    @staticmethod
    def _module(clone: Path) -> str:
        declared = re.search(
            r"^module (\S+)", git(clone, "show", f"v0.{minor(SHIPPED)}.0:go.mod"), re.MULTILINE
        )
        assert declared, clone
        return declared[1]

    @cache  # noqa: B019 - one instance for the whole run
    def structs(self, package: str, version: str) -> Structs:
        """Return the structs of an OpenAPI package (``io.k8s.api.core.v1``); none if the version does not have it."""
        prefix = next(prefix for prefix in MODULES if package.startswith(f"{prefix}."))
        clone, folder = (
            self._clones[MODULES[prefix]],
            package.removeprefix(f"{prefix}.").replace(".", "/"),
        )
        tag = f"v0.{minor(version)}.0"
        found: Structs = {}
        for name in git(clone, "ls-tree", "--name-only", tag, f"{folder}/").split():
            file = name.rpartition("/")[2]
            if (
                file.endswith(".go")
                and not file.endswith("_test.go")
                and not file.startswith(("zz_", "generated."))
            ):
                found |= parse_structs(git(clone, "show", f"{tag}:{name}"))
        return found

    def lifecycles(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield (group, version, kind, fact, value) of all API versions of k8s.io/api, older tags first."""
        clone = self._clones["k8s.io/api"]
        for minor in LIFECYCLE_VERSIONS:
            tag = f"v0.{minor}.0"
            for path in git(clone, "ls-tree", "-r", "--name-only", tag).split():
                folder, _, file = path.rpartition("/")
                if file != "zz_generated.prerelease-lifecycle.go":
                    continue
                declared = re.search(
                    r'GroupName = "([^"]*)"', git(clone, "show", f"{tag}:{folder}/register.go")
                )
                assert declared, folder
                for match in _LIFECYCLE.finditer(git(clone, "show", f"{tag}:{path}")):
                    yield (
                        declared[1],
                        folder.rpartition("/")[2],
                        match["kind"],
                        match["fact"],
                        match["value"],
                    )


def parse_structs(text: str) -> Structs:
    """Return the structs that a Go file declares, with the JSON names of their fields."""
    found: Structs = {}
    current: dict[str, Field] | None = None
    gates: tuple[str, ...] = ()
    for line in text.splitlines():
        if declared := re.match(r"type (\w+) struct \{", line):
            current, gates = found.setdefault(declared[1], {}), ()
        elif line.startswith("}"):
            current = None
        elif current is not None and line.strip().startswith("//"):
            if line.strip().startswith(_GATE):
                gates += tuple(line.strip().removeprefix(_GATE).split(","))
        elif current is not None:
            if field := _FIELD.match(line):
                name = field["json"].partition(",")[0]
                if name and name != "-":
                    current[name] = Field(field["type"], gates)
            gates = ()
    return found


def is_enabled(gate: str, version: str) -> bool:
    """Return whether a feature gate is on by default; unlisted gates are on in all versions."""
    since = FEATURES["default"].get(gate, "1.0")
    return bool(since) and minor(version) >= minor(since)


def minor(version: str) -> int:
    """Return the minor version of ``1.34``."""
    return int(version.partition(".")[2])


def shipped_types() -> dict[str, Any]:
    """Return all shipped types, by name."""
    names: list[str] = []
    for file in sorted((DATA / "types").glob("*.json.gz")):
        package = file.name.removesuffix(".json.gz")
        names += [f"{package}.{short}" for short in package_types(package)]
    return {name: resolve(name) for name in names}


def package_types(package: str) -> list[str]:
    """Return the short names of the types of a package."""
    return sorted(json.loads(gzip.decompress((DATA / "types" / f"{package}.json.gz").read_bytes())))


def differences(sources: Sources, types: dict[str, Any], version: str) -> dict[str, Any]:
    """Return the content of the file of a version."""
    absent: dict[str, list[str]] = {}
    disabled: dict[str, list[str]] = {}
    added: dict[str, dict[str, Any]] = {}
    extra: dict[str, Any] = {}
    unmarked = {field: gate for gate, fields in FEATURES["fields"].items() for field in fields}
    for name, raw in types.items():
        package, _, short = name.rpartition(".")
        now, then = (sources.structs(package, each).get(short, {}) for each in (SHIPPED, version))
        if not then:
            continue
        properties = raw.get("properties", {})
        if fields := [field for field in now if field in properties and field not in then]:
            absent[name] = sorted(fields)
        off = [
            field
            for field in properties
            if field in then
            and not all(is_enabled(gate, version) for gate in gates_of(name, field, now, unmarked))
        ]
        if off:
            disabled[name] = sorted(off)
        for field in sorted(then.keys() - now.keys()):
            added.setdefault(name, {})[field] = {
                **schema_of(then[field].type, package, sources, version, extra),
                "x-envtest-wire": "set"
                if all(is_enabled(gate, version) for gate in then[field].gates)
                else "never",
            }
    unserved = [
        f"{each.group}/{each.version}/{each.plural}"
        for each in all_resources()
        if each.type in types
        and not sources.structs(each.type.rpartition(".")[0], version).get(each.kind)
    ]
    return {
        "absent": absent,
        "added": added,
        "changed": users_of(types, {*absent, *disabled, *added}),
        "disabled": disabled,
        "resources": unserved,
        "types": extra,
    }


def gates_of(
    name: str, field: str, structs: dict[str, Field], unmarked: dict[str, str]
) -> tuple[str, ...]:
    """Return the feature gates of a field."""
    if gate := unmarked.get(f"{name}.{field}"):
        return (gate,)
    return structs[field].gates if field in structs else ()


def schema_of(
    go_type: str, package: str, sources: Sources, version: str, extra: dict[str, Any]
) -> dict[str, Any]:
    """Return the schema of a Go type; structs that are not shipped are added to ``extra``."""
    go_type = go_type.removeprefix("*")
    if go_type.startswith("[]"):
        return {"type": "array", "items": schema_of(go_type[2:], package, sources, version, extra)}
    if go_type.startswith("map[string]"):
        values = schema_of(go_type.removeprefix("map[string]"), package, sources, version, extra)
        return {"type": "object", "additionalProperties": values}
    if go_type in SCALARS:
        return dict(SCALARS[go_type])
    name = f"{package}.{go_type}"
    fields = sources.structs(package, version).get(go_type)
    if fields is None:
        sys.exit(f"{name}: cannot express this Go type")
    try:
        resolve(name)
    except KeyError:
        extra[name] = {"type": "object", "properties": {}}
        for field, each in sorted(fields.items()):
            inner = schema_of(each.type, package, sources, version, extra)
            extra[name]["properties"][field] = {**inner, "x-envtest-wire": "set"}
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}


def users_of(types: dict[str, Any], names: set[str]) -> list[str]:
    """Return ``names`` and all types that contain one of them."""
    references = {
        name: set(re.findall(r"schemas/([\w.-]+)", json.dumps(raw))) for name, raw in types.items()
    }
    found = set(names)
    while more := {name for name, used in references.items() if used & found} - found:
        found |= more
    return sorted(found)


def lifecycles(sources: Sources) -> dict[str, dict[str, str]]:
    """Return the removal and the replacement of each API version of a kind that is not a shipped one."""
    shipped = {(each.group, each.version, each.kind) for each in all_resources()}
    found: dict[str, dict[str, str]] = {}
    for group, version, kind, fact, value in sources.lifecycles():
        if kind.endswith("List") or (group, version, kind) in shipped:
            continue
        entry = found.setdefault(f"{group}/{version} {kind}" if group else f"{version} {kind}", {})
        if fact == "Replacement":
            target = _KIND.search(value)
            assert target, value
            api_version = (
                f"{target['group']}/{target['version']}" if target["group"] else target["version"]
            )
            entry["replacement"] = f"{api_version} {target['kind']}"
        else:
            entry[fact.lower()] = ".".join(value.split(", "))
    return dict(sorted({**EARLIER_REMOVALS, **found}.items()))


def write(path: Path, content: Any) -> None:
    """Write JSON in one form, so that the same inputs write the same files."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    print(f"wrote {path.relative_to(DATA)} ({path.stat().st_size} bytes)")


def main(clones: list[str]) -> None:
    """Write the files of all versions, and the table of removed API versions."""
    sources = Sources([Path(clone) for clone in clones])
    types = shipped_types()
    for version in VERSIONS:
        write(DATA / "versions" / f"{version}.json", differences(sources, types, version))
    write(DATA / "lifecycle.json", lifecycles(sources))


if __name__ == "__main__":
    main(sys.argv[1:])
