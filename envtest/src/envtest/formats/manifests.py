"""Reads manifest files: YAML or JSON, one object or many."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envtest.apimachinery.objects import Object
from envtest.configuration.arguments import checked_path
from envtest.formats.bounded_file import read_file

__all__ = [
    "CRD",
    "WEBHOOK_CONFIGURATIONS",
    "Manifests",
    "load_crds",
    "load_manifests",
    "load_webhook_manifests",
    "read_manifests",
    "require_sources",
    "split_documents",
    "webhook_conversion",
]

CRD = "CustomResourceDefinition"
WEBHOOK_CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})

Manifests = Path | str | Mapping[str, Any]
"""An object, a YAML or JSON file, or a folder of such files."""


def load_manifests(sources: Iterable[Manifests], *kinds: str) -> Iterator[Object]:
    """Yield the objects of ``kinds`` in ``sources``. Raises TypeError, ValueError, OSError."""
    for source in sources:
        if not isinstance(source, Path | str | Mapping):
            raise TypeError(
                f"a source of type {type(source).__name__}: must be the path of a file or folder, or an object "
                "as a mapping; pass several as several arguments"
            )
        objects = (
            [dict(source)]
            if isinstance(source, Mapping)
            else read_manifests(checked_path("a source", source), objects_only=True)
        )
        for obj in objects:
            if obj.get("kind") not in kinds:
                continue
            metadata = obj.get("metadata")
            if not isinstance(metadata, Mapping) or not metadata.get("name"):
                prefix = "" if isinstance(source, Mapping) else f"{source}: "
                raise ValueError(f"{prefix}{obj['kind']}: metadata.name is missing")
            yield obj


def require_sources(sources: Collection[Manifests]) -> None:
    """Raise TypeError if there is no source, as of a call without arguments."""
    if not sources:
        raise TypeError(
            "no source: must be the path of a file or folder, or an object as a mapping, or several"
        )


def load_crds(sources: Iterable[Manifests]) -> list[Object]:
    """Return the CRDs in ``sources``. Raises ValueError, also for a source without any CRD, and OSError."""
    found: list[Object] = []
    for source in sources:
        crds = list(load_manifests([source], CRD))
        if not crds:
            raise ValueError(f"no {CRD} in {_described(source)}{_subfolder_hint(source)}")
        found += crds
    return found


def load_webhook_manifests(sources: Iterable[Manifests]) -> list[Object]:
    """Return the webhook configurations, and the CRDs with a conversion webhook, in ``sources``.

    Raises TypeError; ValueError, also for a source without any of them, and for a configuration whose webhooks cannot
    be called; OSError.
    """
    found: list[Object] = []
    for source in sources:
        objects = [
            obj
            for obj in load_manifests([source], *WEBHOOK_CONFIGURATIONS, CRD)
            if obj["kind"] != CRD or webhook_conversion(obj)
        ]
        if not objects:
            kinds = ", ".join(WEBHOOK_CONFIGURATIONS)
            raise ValueError(
                f"no {kinds} or {CRD} with a conversion webhook in {_described(source)}"
            )
        for obj in objects:
            _check_webhooks(obj)
        found += objects
    return found


def webhook_conversion(obj: Object) -> dict[str, Any]:
    """Return ``spec.conversion`` of a CRD with a conversion webhook, otherwise an empty dict."""
    if obj.get("kind") != CRD:
        return {}
    spec = obj.get("spec")
    conversion = spec.get("conversion") if isinstance(spec, dict) else None
    if not isinstance(conversion, dict) or conversion.get("strategy") != "Webhook":
        return {}
    return conversion


def _check_webhooks(obj: Object) -> None:
    """Raise ValueError for a configuration without webhooks, and for a webhook without an address."""
    owner = f"{obj['kind']} {obj['metadata']['name']}"
    if obj["kind"] == CRD:
        path = "spec.conversion.webhook.clientConfig"
        webhook = webhook_conversion(obj).get("webhook")
        _check_address(owner, path, webhook)
        return
    webhooks = obj.get("webhooks")
    if not isinstance(webhooks, list) or not webhooks:
        raise ValueError(f"{owner}: webhooks: must be a list with at least one webhook")
    for number, webhook in enumerate(webhooks):
        _check_address(owner, f"webhooks[{number}].clientConfig", webhook)


def _check_address(owner: str, path: str, webhook: object) -> None:
    config = webhook.get("clientConfig") if isinstance(webhook, Mapping) else None
    if isinstance(config, Mapping):
        service = config.get("service")
        if isinstance(service, Mapping) or (service is None and config.get("url")):
            return
    raise ValueError(
        f"{owner}: {path}.service: must be a mapping with namespace, name and path, "
        "which the local server replaces"
    )


def _described(source: Manifests) -> str:
    if isinstance(source, Mapping):
        return f"an object of kind {source.get('kind')}"
    return str(source)


def _subfolder_hint(source: Manifests) -> str:
    """Return the first subfolder with manifest files, such as ``bases`` of controller-gen: subfolders are not read."""
    if isinstance(source, Mapping) or not Path(source).is_dir():
        return ""
    for folder in sorted(Path(source).iterdir()):
        if folder.is_dir() and any(file.suffix in _SUFFIXES for file in folder.iterdir()):
            return f"; subfolders are not read, use {folder}"
    return ""


def read_manifests(path: Path, *, objects_only: bool = False) -> Iterator[Object]:
    """Yield the objects in a file, or in a folder's manifest files in the order of their names.

    ``objects_only`` skips well-formed documents that are not Kubernetes objects, such as kustomize's files.
    Raises OSError if a file cannot be read, ValueError (naming the file) if it is not a manifest.
    """
    from envtest.formats.yaml_codec import YAMLError, load

    if path.is_dir():
        for file in sorted(path.iterdir()):
            if file.suffix in _SUFFIXES:
                yield from read_manifests(file, objects_only=objects_only)
        return
    for start, text in split_documents(read_file(path)):
        try:
            document = load(text)
        except YAMLError as error:
            raise ValueError(f"{path}:{start + error.line - 1}: {error.problem}") from None
        if document is None:
            continue
        if not isinstance(document, dict) or not document.get("kind"):
            if objects_only:
                continue
            raise ValueError(f"{path}: not a Kubernetes object: apiVersion and kind are missing")
        if document["kind"] == "List":
            yield from document.get("items") or ()
        else:
            yield document


def split_documents(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the documents of a YAML file, each with the line on which it starts; the first line is 1."""
    lines: list[bytes] = []
    start = 1
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if line.rstrip() == b"---" or line.startswith(b"--- "):
            yield start, b"".join(lines)
            lines = []
            start = number + 1
        else:
            lines.append(line)
    yield start, b"".join(lines)
