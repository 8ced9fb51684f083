"""Which files ``envtest validate`` checks.

A folder is searched for YAML and JSON files. Files that contain parts of objects rather than objects are skipped:
templates of Helm charts, and what kustomizations refer to as patches, values or generator input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from envtest.formats.yaml_codec import YAMLError, load

__all__ = ["Selection", "select_files"]

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_CHARTS: Final = ("Chart.yaml", "Chart.yml")
_CHART: Final = "part of a Helm chart; check its result: helm template FOLDER | envtest validate -"
_KUSTOMIZATION: Final = (
    "a kustomization; check its result: kubectl kustomize FOLDER | envtest validate -"
)
_SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "vendor"})
_FILE_LISTS: Final = (
    "configurations",
    "generators",
    "patchesStrategicMerge",
    "transformers",
    "validators",
)
_PATHS: Final = ("patches", "patchesJson6902", "replacements")
_GENERATORS: Final = ("configMapGenerator", "secretGenerator")
_MAX_KUSTOMIZATION_BYTES: Final = 1 << 20


class Selection(NamedTuple):
    """The files to check, and the reasons for skipping others, by file."""

    files: list[Path]
    skipped: dict[Path, str]


def select_files(paths: Iterable[Path]) -> Selection:
    """Return the files to check below ``paths``, in the order of the paths, then of the names. Raises OSError."""
    files: dict[Path, None] = {}
    skipped: dict[Path, str] = {}
    for path in paths:
        files_of_path = _below(path) if path.is_dir() else (path,)
        for file in files_of_path:
            reason = _reason(file)
            if reason:
                skipped[file] = reason
            else:
                files[file] = None
    return Selection(list(files), skipped)


def _below(folder: Path) -> Iterator[Path]:
    """Yield the manifest files of a folder and its subfolders; hidden ones and links to folders are not searched."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if not entry.is_symlink() and entry.name not in _SKIPPED_FOLDERS:
                yield from _below(entry)
        elif (entry.suffix in _SUFFIXES or entry.name in _KUSTOMIZATIONS) and not _is_special(
            entry
        ):
            yield entry


def _is_special(path: Path) -> bool:
    """Return whether a path is a pipe or a device, whose reader may wait forever; links that lead nowhere are not."""
    return path.exists() and not path.is_file()


def _reason(file: Path) -> str:
    """Return why a file is skipped; empty if it is not."""
    if file.name in _KUSTOMIZATIONS:
        return _KUSTOMIZATION
    if file.name in _CHARTS:
        return _CHART
    absolute = file.absolute()
    for folder in absolute.parents:
        below = absolute.relative_to(folder).parts
        if below[0] == "templates" and any(_exists(folder / name) for name in _CHARTS):
            return _CHART
        use = _uses(folder).get(_normalized(absolute))
        if use:
            return f"{use} of a kustomization"
    return ""


@cache
def _exists(path: Path) -> bool:
    return path.is_file()


def _normalized(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


@cache
def _uses(folder: Path) -> Mapping[str, str]:
    """Return the files that the kustomization of a folder uses, except resources, and for what."""
    for name in _KUSTOMIZATIONS:
        file = folder / name
        if not _exists(file) or file.stat().st_size > _MAX_KUSTOMIZATION_BYTES:
            continue
        try:
            content = load(file.read_bytes())
        except (OSError, YAMLError):
            return {}
        return {_normalized(folder / path): use for path, use in _used(content) if "\n" not in path}
    return {}


def _used(content: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(content, dict):
        return

    def entries(name: str) -> list[Any]:
        value = content.get(name)
        return value if isinstance(value, list) else []

    for name in _FILE_LISTS:
        use = "a patch" if name.startswith("patches") else f"one of the {name}"
        yield from ((each, use) for each in entries(name) if isinstance(each, str))
    for name in _PATHS:
        for each in entries(name):
            if isinstance(each, dict) and isinstance(each.get("path"), str):
                yield each["path"], "a patch" if name.startswith("patches") else "a replacement"
    for name in _GENERATORS:
        for each in entries(name):
            for key in ("files", "envs"):
                found = each.get(key) if isinstance(each, dict) else None
                if isinstance(found, list):
                    for item in found:
                        if isinstance(item, str):
                            yield item.rpartition("=")[2], f"input of the {name}"
    for each in entries("helmCharts"):
        if isinstance(each, dict) and isinstance(each.get("valuesFile"), str):
            yield each["valuesFile"], "values"
