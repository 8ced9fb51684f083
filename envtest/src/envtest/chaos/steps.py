"""Scenarios: the steps that change the state while the operator runs, from a file or a folder of manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object
from envtest.controllers.loopback_client import LoopbackClient
from envtest.formats.bounded_file import read_file
from envtest.formats.manifests import read_manifests

if TYPE_CHECKING:
    from envtest.planes.embedded import EmbeddedServer
    from envtest.registry.resource import ResourceInfo

__all__ = ["Scenario", "ScenarioError", "Step", "apply_objects", "load_scenario", "parse_scenario"]

_MAX_STEPS: Final = 100
_MAX_BYTES: Final = 1 << 20
_FILES: Final = ("scenario.yaml", "scenario.yml", "scenario.json")
_ACTIONS: Final = ("apply", "patch", "delete", "advance")


class ScenarioError(ValueError):
    """Raised when a scenario is invalid, or when the API server rejects a step; the message says which."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action: ``apply`` (create or replace), ``patch`` (JSON merge patch), ``delete`` or ``advance`` (the clock).

    ``objects`` are whole objects for ``apply``, references (apiVersion, kind, name, namespace) for ``delete`` and
    ``patch``. A patch may be one of a ``subresource``, such as ``status``.
    """

    name: str
    action: str
    objects: tuple[Object, ...] = ()
    patch: Any = None
    subresource: str = ""
    seconds: float = 0.0

    async def run(self, plane: EmbeddedServer) -> None:
        """Execute the step. Raises ScenarioError."""
        try:
            await self._run(plane)
        except (StatusError, LookupError) as error:
            message = error.message if isinstance(error, StatusError) else error
            raise ScenarioError(f"step {self.name!r}: {message}") from error

    async def _run(self, plane: EmbeddedServer) -> None:
        if self.action == "advance":
            await plane.advance(self.seconds)
        elif self.action == "apply":
            await apply_objects(plane, self.objects)
        else:
            for obj in self.objects:
                await self._change(plane, obj)

    async def _change(self, plane: EmbeddedServer, obj: Object) -> None:
        from envtest.apply.mergepatch import merge_patch

        client = _client(plane)
        info, namespace, name = _address(plane, obj)
        if self.action == "delete":
            await client.delete(info.storage, namespace, name)
            return

        def change(live: Object) -> None:
            patched = merge_patch(live, self.patch)
            live.clear()
            live.update(patched)

        if (
            await client.modify(info.storage, namespace, name, change, subresource=self.subresource)
            is None
        ):
            raise ScenarioError(f"step {self.name!r}: {obj['kind']} {name!r} does not exist")


async def apply_objects(plane: EmbeddedServer, objects: Iterable[Object]) -> None:
    """Create or replace objects in order; objects without a namespace are created in ``default``.

    Raises StatusError, LookupError.
    """
    client = _client(plane)
    for obj in objects:
        _, namespace, _ = _address(plane, obj)
        metadata = {**obj["metadata"], "namespace": namespace} if namespace else obj["metadata"]
        await client.put({**obj, "metadata": metadata})


def _client(plane: EmbeddedServer) -> LoopbackClient:
    return LoopbackClient(plane.api_server.core, "envtest", manager="envtest-chaos")


def _address(plane: EmbeddedServer, obj: Object) -> tuple[ResourceInfo, str, str]:
    registry = plane.api_server.core.registry
    info = registry.of_object(str(obj["apiVersion"]), str(obj["kind"]))
    metadata = obj["metadata"]
    return (
        info,
        (metadata.get("namespace") or "default") if info.namespaced else "",
        metadata["name"],
    )


@dataclass(frozen=True, slots=True)
class Scenario:
    """The steps, in order. Step 0, the start of the operator, is not one of them."""

    steps: Sequence[Step] = ()

    def describe(self, number: int) -> str:
        """Return the name of a step."""
        return "start of the operator" if number == 0 else self.steps[number - 1].name


def load_scenario(path: Path) -> Scenario:
    """Read a scenario: a file with ``steps``, a folder with ``scenario.yaml``, or a folder of manifests.

    In a folder of manifests each file is a step that is applied, in the order of their names; the last step deletes all
    of their objects. Raises ScenarioError, OSError.
    """
    if path.is_dir():
        for name in _FILES:
            if (path / name).is_file():
                return load_scenario(path / name)
        return _manifest_steps(path)
    if path.stat().st_size > _MAX_BYTES:
        raise ScenarioError(f"{path}: must not be larger than {_MAX_BYTES} bytes")
    from envtest.formats.yaml_codec import YAMLError, load

    try:
        document = load(read_file(path))
    except YAMLError as error:
        raise ScenarioError(f"{path}:{error.line}: {error.problem}") from None
    try:
        return parse_scenario(document, path.parent)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _manifest_steps(folder: Path) -> Scenario:
    steps: list[Step] = []
    applied: list[Object] = []
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.suffix in (".yaml", ".yml", ".json"):
            objects = _objects(file)
            applied += objects
            steps.append(Step(f"apply {file.name}", "apply", objects))
    if not steps:
        raise ScenarioError(f"{folder}: contains no manifests")
    steps.append(Step("delete all", "delete", tuple(reversed(applied))))
    return _bounded(steps)


def _bounded(steps: Sequence[Step]) -> Scenario:
    if len(steps) > _MAX_STEPS:
        raise ScenarioError(f"{len(steps)} steps: at most {_MAX_STEPS} are allowed")
    return Scenario(tuple(steps))


def parse_scenario(document: Any, folder: Path | None = None) -> Scenario:
    """Return the scenario of a decoded document; files are relative to ``folder``. Raises ScenarioError, OSError."""
    steps = document.get("steps") if isinstance(document, Mapping) else None
    if not isinstance(steps, list):
        raise ScenarioError("steps: must be a list")
    return _bounded([_step(number, step, folder) for number, step in enumerate(steps, 1)])


def _step(number: int, step: Any, folder: Path | None) -> Step:
    where = f"steps[{number - 1}]"
    if not isinstance(step, Mapping):
        raise ScenarioError(f"{where}: must be an object")
    actions = [action for action in _ACTIONS if action in step]
    unknown = sorted(step.keys() - {*_ACTIONS, "name"})
    if len(actions) != 1 or unknown:
        problem = f"unknown field {unknown[0]!r}" if unknown else "must have exactly one action"
        raise ScenarioError(
            f"{where}: {problem}; allowed are name and one of {', '.join(_ACTIONS)}"
        )
    action = actions[0]
    value = step[action]
    if action == "advance":
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ScenarioError(f"{where}.advance: {value!r}: must be a number of seconds")
        return Step(str(step.get("name") or f"advance {value:g} s"), action, seconds=float(value))
    if action == "patch":
        return _patch_step(where, step, value)
    objects = _sources(f"{where}.{action}", value, folder)
    return Step(str(step.get("name") or f"{action} {_title(value, objects)}"), action, objects)


def _patch_step(where: str, step: Mapping[str, Any], value: Any) -> Step:
    if not isinstance(value, Mapping) or not isinstance(value.get("patch"), Mapping):
        raise ScenarioError(f"{where}.patch: must have apiVersion, kind, name and patch")
    reference = _checked(f"{where}.patch", _reference(value))
    title = str(step.get("name") or f"patch {reference['kind']} {reference['metadata']['name']}")
    return Step(title, "patch", (reference,), value["patch"], str(value.get("subresource") or ""))


def _reference(value: Mapping[str, Any]) -> Object:
    metadata = {key: value[key] for key in ("name", "namespace") if key in value}
    return {"apiVersion": value.get("apiVersion"), "kind": value.get("kind"), "metadata": metadata}


def _sources(where: str, value: Any, folder: Path | None) -> tuple[Object, ...]:
    """Return the objects of a file name, an object, a reference, or a list of them."""
    values = value if isinstance(value, list) else [value]
    found: list[Object] = []
    for each in values:
        if isinstance(each, str):
            if folder is None:
                raise ScenarioError(f"{where}: {each!r}: files are not available here")
            found += _objects(folder / each)
        elif isinstance(each, Mapping):
            obj = dict(each) if "metadata" in each else _reference(each)
            found.append(_checked(where, obj))
        else:
            raise ScenarioError(f"{where}: must be a file, an object, or a list of them")
    return tuple(found)


def _objects(path: Path) -> tuple[Object, ...]:
    try:
        return tuple(_checked(str(path), obj) for obj in read_manifests(path, objects_only=True))
    except ScenarioError:
        raise
    except ValueError as error:
        raise ScenarioError(str(error)) from None


def _checked(where: str, obj: Object) -> Object:
    metadata = obj.get("metadata")
    named = isinstance(metadata, Mapping) and bool(metadata.get("name"))
    if not (isinstance(obj.get("apiVersion"), str) and isinstance(obj.get("kind"), str) and named):
        raise ScenarioError(f"{where}: apiVersion, kind and metadata.name are required")
    return obj


def _title(value: Any, objects: Sequence[Object]) -> str:
    if isinstance(value, str):
        return value
    return ", ".join(f"{obj['kind']} {obj['metadata']['name']}" for obj in objects[:3])
