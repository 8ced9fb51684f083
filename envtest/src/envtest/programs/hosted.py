"""The API servers that one ``etcd`` program runs: those with the same ``--etcd-prefix`` share a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from envtest.apimachinery.clock import Clock
from envtest.auth.front_proxy import ClientAuthorities
from envtest.formats.certificate_authority import server_context
from envtest.programs.flags import FlagError
from envtest.programs.server_options import ServerOptions
from envtest.server.assembly import (
    APIServer,
    Cluster,
    assemble,
    create_initial_objects,
    publish_address,
    publish_authentication,
    resume,
)
from envtest.storage.archive import Archive

__all__ = ["HostedServers"]

MAX_CLUSTERS = 64
"""Maximum number of values of ``--etcd-prefix`` for one ``etcd``."""

_CLOCK_OFFSET = "clock-offset"


class _HostedCluster:
    """The objects of one prefix, and their file."""

    def __init__(self, cluster: Cluster, archive: Archive) -> None:
        self.cluster = cluster
        self.archive = archive

    def save_offset(self, offset: float) -> None:
        """Store how far the clock is ahead, so that time continues after a restart."""
        self.archive.put(_CLOCK_OFFSET, repr(offset).encode())


class HostedServers:
    """Starts and stops API servers; keeps the objects of each prefix in a folder below ``data_dir``."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._clusters: dict[str, _HostedCluster] = {}
        self._starting = asyncio.Lock()

    async def start(self, options: ServerOptions, report: Callable[[str], None]) -> APIServer:
        """Start an API server; return when it listens. Messages for the user are passed to ``report``.

        Raises FlagError for options that do not fit the cluster, OSError and ValueError for addresses, certificates and
        data that cannot be used.
        """
        proxy = options.front_proxy
        accepted = options.client_ca
        authorities = None
        if proxy is not None:
            accepted = b"\n".join((options.client_ca or b"", proxy.ca))
            authorities = ClientAuthorities(options.client_ca, proxy)
        context = server_context(options.certificate, accepted)
        async with self._starting:
            hosted = self._clusters.get(options.prefix)
            first = hosted is None
            if hosted is None:
                hosted = self._open(options)
            cluster = hosted.cluster
            if cluster.service_network != options.service_network:
                raise FlagError(
                    f"--service-cluster-ip-range={options.service_network}: the API servers of this etcd use "
                    f"{cluster.service_network}"
                )
            if cluster.version != options.version:
                raise FlagError(
                    f"Kubernetes {options.version}: the API servers of this etcd behave like {cluster.version}"
                )
            _check_runtime_config(cluster, options, report)
            api_server = assemble(
                admin_token="",
                users=options.users,
                audit_log=options.audit_log,
                plugins=options.plugins,
                token_settings=options.tokens,
                anonymous=options.anonymous,
                cluster=cluster,
                features=options.features,
                authorities=authorities,
            )
            if first:
                hosted.archive.restore(cluster.store)
                cluster.clock.moved.append(hosted.save_offset)
                resume(api_server)
                self._clusters[options.prefix] = hosted
            await create_initial_objects(api_server)
            publish_authentication(api_server, options.client_ca, proxy)
        try:
            await api_server.server.start(options.host, options.port, context)
            publish_address(api_server, options.advertised)
        except BaseException:
            await self.stop(api_server)
            raise
        return api_server

    def _open(self, options: ServerOptions) -> _HostedCluster:
        if len(self._clusters) >= MAX_CLUSTERS:
            raise FlagError(
                f"--etcd-prefix={options.prefix}: this etcd has {MAX_CLUSTERS} prefixes already"
            )
        folder = self._data_dir / quote(options.prefix.strip("/") or "registry", safe="")
        archive = Archive(folder)
        clock = Clock(float(archive.get(_CLOCK_OFFSET) or 0))
        return _HostedCluster(Cluster(options.service_network, clock, options.version), archive)

    async def stop(self, api_server: APIServer) -> None:
        """Stop an API server: end its watches and close its connections. Its objects remain."""
        api_server.core.close_watchers()
        await api_server.server.stop()
        api_server.audit.close()

    async def close(self) -> None:
        """Write all changes and close the files; all API servers have been stopped."""
        while self._clusters:
            _, hosted = self._clusters.popitem()
            hosted.cluster.clock.close()
            await hosted.cluster.close()
            hosted.archive.close()


def _check_runtime_config(
    cluster: Cluster, options: ServerOptions, report: Callable[[str], None]
) -> None:
    """Report requested API versions that are not served. Raises FlagError for served ones that shall be disabled."""
    served = {info.api_version for info in cluster.registry.stored()}
    for name, value in options.runtime_config.items():
        if value == "false" and name in served:
            raise FlagError(f"--runtime-config={name}=false: envtest cannot disable API versions")
        if value == "true" and name not in served:
            report(f"--runtime-config={name}=true: envtest does not serve {name}")
