"""The registry of served resources, built-in and custom, by URL and by kind.

Versions of the same resource, and resources that serve the same objects (``events`` in the core group and in
``events.k8s.io``), share their ``storage``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from envtest.apimachinery.errors import GroupResource
from envtest.registry.resource import ResourceInfo

__all__ = ["Registry"]


def hint_about(kinds: Sequence[str]) -> str:
    """Return the end of an error about a kind that is not served: which ones to use; empty if there are none."""
    return f"; use {' or '.join(kinds)}" if kinds else ""


class Registry:
    """The served resources. Every change increments ``generation`` and calls the ``on_change`` callbacks."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], ResourceInfo] = {}
        self._by_kind: dict[tuple[str, str, str], ResourceInfo] = {}
        self._groups: dict[str, dict[str, int]] = {}
        self.generation = 0
        self.on_change: list[Callable[[], None]] = []

    def fork(self) -> Registry:
        """Return a copy without callbacks. Resources are shared, except those with allocations."""
        copied = Registry()
        copied.generation = self.generation
        for path, info in self._by_path.items():
            copied._by_path[path] = info.fork() if info.allocates else info
        copied._by_kind = {
            key: copied._by_path[info.group, info.version, info.plural]
            for key, info in self._by_kind.items()
        }
        copied._groups = {group: dict(versions) for group, versions in self._groups.items()}
        return copied

    def register(self, info: ResourceInfo) -> None:
        """Serve ``info``; it replaces the entry of the same group, version and plural."""
        path = (info.group, info.version, info.plural)
        if path in self._by_path:
            self._remove(path)
        self._by_path[path] = info
        self._by_kind[info.group, info.version, info.kind] = info
        versions = self._groups.setdefault(info.group, {})
        versions[info.version] = versions.get(info.version, 0) + 1
        self._changed()

    def unregister(self, group: str, plural: str, version: str | None = None) -> None:
        """Stop serving a resource, in one version or in all."""
        matching = [path for path in self._by_path if path[0] == group and path[2] == plural]
        for path in matching:
            if version is None or path[1] == version:
                self._remove(path)
        self._changed()

    def lookup(self, group: str, version: str, plural: str) -> ResourceInfo | None:
        """Return the resource at a URL."""
        return self._by_path.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> ResourceInfo | None:
        """Return the resource of a kind."""
        return self._by_kind.get((group, version, kind))

    def of_object(self, api_version: str, kind: str) -> ResourceInfo:
        """Return the resource of an object.

        Raises LookupError if it is not served; the message names the versions in which this kind is served.
        """
        group, _, version = api_version.rpartition("/")
        info = self.by_kind(group, version, kind)
        if info is None:
            message = f"kind {kind} in apiVersion {api_version!r} is not served"
            raise LookupError(message + hint_about(self.similar_kinds(kind)))
        return info

    def similar_kinds(self, kind: str) -> list[str]:
        """Return ``VERSION KIND`` of the served kinds that have this name, in any case, or are its plural or short."""
        name = kind.lower()
        return [
            f"{info.api_version} {info.kind}"
            for info in self._by_path.values()
            if name in (info.kind.lower(), info.plural, *info.short_names)
        ]

    def any_version(self, group: str, plural: str) -> ResourceInfo | None:
        """Return the resource in its storage version, or in another served version."""
        found = None
        for info in self._by_path.values():
            if info.group == group and info.plural == plural:
                if info.api_version == info.storage_version:
                    return info
                found = found or info
        return found

    def has_group(self, group: str) -> bool:
        """Return whether any version of ``group`` is served."""
        return group in self._groups

    def has_version(self, group: str, version: str) -> bool:
        """Return whether this version of ``group`` is served."""
        return version in self._groups.get(group, ())

    def versions(self, group: str) -> list[str]:
        """Return the served versions of ``group``, in the order of registration."""
        return list(self._groups.get(group, ()))

    def groups(self) -> list[str]:
        """Return the served groups, in the order of registration."""
        return list(self._groups)

    def stored(self) -> Iterator[ResourceInfo]:
        """Iterate over one info for each stored resource: the storage version if it is served, otherwise any other."""
        seen: dict[GroupResource, ResourceInfo] = {}
        for info in self._by_path.values():
            best = seen.get(info.storage)
            if best is None or (info.api_version == info.storage_version != best.api_version):
                seen[info.storage] = info
        return iter(list(seen.values()))

    def __iter__(self) -> Iterator[ResourceInfo]:
        return iter(list(self._by_path.values()))

    def _remove(self, path: tuple[str, str, str]) -> None:
        info = self._by_path.pop(path)
        if self._by_kind.get((info.group, info.version, info.kind)) is info:
            del self._by_kind[info.group, info.version, info.kind]
        versions = self._groups[info.group]
        versions[info.version] -= 1
        if not versions[info.version]:
            del versions[info.version]
        if not versions:
            del self._groups[info.group]

    def _changed(self) -> None:
        self.generation += 1
        for callback in self.on_change:
            callback()
