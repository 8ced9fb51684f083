"""Clusters from kubeconfig files, as multicluster-runtime's ``file`` provider."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from cfo.runtime.client.config import ClientConfig, ConfigError, load_config
from cfo.runtime.client.kubeconfig_errors import KubeconfigError
from cfo.runtime.client.untrusted_kubeconfig import (
    MAX_KUBECONFIG_BYTES,
    KubeconfigPolicy,
    parse_untrusted_kubeconfig,
)
from cfo.runtime.clusters.options import ClusterAware, ClusterRefused
from cfo.runtime.process.files_watcher import FilesWatcher

__all__ = ["KubeconfigFiles"]

_SUFFIXES: Final = (".kubeconfig.yaml", ".kubeconfig.yml", ".kubeconfig", ".yaml", ".yml")
_MAX_FILES: Final = 1000
_LOGIN_SECONDS: Final = 30.0
"""How long an exec plugin of a trusted kubeconfig has to return credentials."""


class KubeconfigFiles:
    """Engages a cluster for the current context of each kubeconfig file.

    ``paths`` are files and directories; of a directory, the files named ``*.kubeconfig``, ``*.yaml`` and ``*.yml`` are
    used, for example of a mounted Secret. They may be created later. The name of a cluster is the name of its file
    without this suffix; of several files with the same name, the first one is used. Changes are reported by the
    operating system.

    Kubeconfigs are checked as those of Secrets (:class:`~cfo.runtime.clusters.kubeconfig_secrets.KubeconfigSecrets`),
    with the same ``policy``. With ``trusted`` they may also run exec plugins and read files, as kubectl allows: set it
    only if no one else can write the files.
    """

    def __init__(self, *paths: str | Path, policy: KubeconfigPolicy | None = None, trusted: bool = False) -> None:
        if not paths:
            raise ValueError("paths must not be empty")
        self.paths = tuple(Path(path) for path in paths)
        self.policy = policy or KubeconfigPolicy()
        self.trusted = trusted
        self._digests: dict[str, tuple[Path, bytes]] = {}
        self._refused: set[str] = set()
        self._changed = anyio.Event()

    async def run(self, aware: ClusterAware) -> None:
        """Follow the files until cancelled."""
        directories = dict.fromkeys(path.parent if _is_file(path) else path for path in self.paths)
        async with anyio.create_task_group() as tasks:
            for directory in directories:
                tasks.start_soon(_Watcher(directory, self._notify).run)
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                await self._update(aware, await to_thread.run_sync(self._read))

    def _notify(self) -> None:
        self._changed.set()

    async def _update(self, aware: ClusterAware, found: dict[str, tuple[Path, bytes]]) -> None:
        for name in [name for name in self._digests if name not in found]:
            del self._digests[name]
            aware.disengage(name)
        for name, (path, content) in found.items():
            digest = hashlib.sha256(content).digest()
            if self._digests.get(name) == (path, digest) and name not in self._refused:
                continue
            self._digests[name] = path, digest
            self._refused.discard(name)
            try:
                aware.engage(name, await self._load(path, content))
            except (KubeconfigError, ConfigError, TimeoutError) as error:
                if self.trusted:
                    self._refused.add(name)  # a login can fail for a while, so it is tried again
                reason = str(error) or f"no credentials within {_LOGIN_SECONDS:g} s"
                aware.reject(name, reason if reason.startswith(str(path)) else f"{path}: {reason}")
            except ClusterRefused as error:
                self._refused.add(name)
                aware.reject(name, str(error))

    async def _load(self, path: Path, content: bytes) -> ClientConfig:
        if self.trusted:
            with anyio.fail_after(_LOGIN_SECONDS):
                return await load_config(str(path))
        return await to_thread.run_sync(parse_untrusted_kubeconfig, content, self.policy)

    def _read(self) -> dict[str, tuple[Path, bytes]]:
        """Return path and content of the kubeconfigs by the name of the cluster."""
        found: dict[str, tuple[Path, bytes]] = {}
        for path in _files(self.paths):
            name = _cluster_name(path)
            if name in found or len(found) >= _MAX_FILES:
                continue
            try:
                with path.open("rb") as file:
                    content = file.read(MAX_KUBECONFIG_BYTES + 1)
            except OSError:
                continue  # deleted meanwhile, or not readable
            found[name] = path, content
        return found


class _Watcher(FilesWatcher):
    """Calls ``notify`` when a file in the directory changes."""

    def __init__(self, directory: Path, notify: Callable[[], None]) -> None:
        super().__init__(directory)
        self._notify = notify

    def _load(self) -> None:
        self._notify()


def _is_file(path: Path) -> bool:
    return path.is_file() or (not path.is_dir() and path.name.endswith(_SUFFIXES))


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for entry in sorted(path.iterdir()):
            if entry.name.endswith(_SUFFIXES) and not entry.name.startswith(".") and entry.is_file():
                yield entry


def _cluster_name(path: Path) -> str:
    for suffix in _SUFFIXES:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.name
