"""The public classes: control planes for development and tests, embedded (in this process) or real.

``async with ControlPlane.embedded() as plane`` serves the Kubernetes API on 127.0.0.1 until the block ends.
``ControlPlane.real()`` starts etcd and kube-apiserver from ``$KUBEBUILDER_ASSETS``. ``ControlPlane.auto()`` uses the
real control plane if that variable is set. Tests do not depend on which one is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from envtest.configuration.arguments import checked_path, checked_sources
from envtest.configuration.controller_names import DEFAULT
from envtest.configuration.service_network import DEFAULT_SERVICE_NETWORK
from envtest.formats.manifests import Manifests
from envtest.planes.base import BaseControlPlane, InstallError
from envtest.planes.embedded import EmbeddedServer
from envtest.planes.real import RealServer

if TYPE_CHECKING:
    from envtest.scenarios.scenario import Scenario

ScenarioSource: TypeAlias = Union[Path, str, Mapping[str, Any], "Scenario"]

__all__ = ["ControlPlane", "EmbeddedControlPlane", "InstallError", "RealControlPlane"]


def _scenario(source: ScenarioSource | None) -> Scenario | None:
    """Return a scenario. Its code is imported only if there is one. Raises ScenarioError, OSError, TypeError."""
    if source is None:
        return None
    from envtest.scenarios.scenario import Scenario

    if isinstance(source, Scenario):
        return source
    if not isinstance(source, str | Path | Mapping):
        raise TypeError(f"scenario: {source!r}: must be a path, a mapping or a Scenario")
    return Scenario(source if isinstance(source, Mapping) else checked_path("scenario", source))


class ControlPlane(BaseControlPlane):
    """The interface of all control planes, and the factories that create them."""

    @staticmethod
    def embedded(
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        crds: Iterable[Manifests] = (),
        controllers: Sequence[str] = DEFAULT,
        token: str | None = None,
        token_auth_file: Path | str | None = None,
        audit_log: Path | str | None = None,
        data_dir: Path | str | None = None,
        service_cluster_ip_range: str = str(DEFAULT_SERVICE_NETWORK),
        kubernetes_version: str = "",
        feature_gates: Mapping[str, bool] | None = None,
        scenario: ScenarioSource | None = None,
        plaintext: bool = False,
    ) -> EmbeddedControlPlane:
        """Return a control plane that runs in this process and event loop.

        ``port`` 0 selects a free port. ``controllers`` names the built-in controllers to run. ``token`` is the bearer
        token of user ``admin`` (random by default). ``token_auth_file`` names more users in kube-apiserver's CSV
        format. ``audit_log`` is a file that receives audit events. ``data_dir`` keeps objects, CA and tokens after the
        process ends (the disk is not flushed); without it they are lost. ``service_cluster_ip_range`` is the IPv4
        network from which Services get their cluster IPs, in CIDR notation. ``kubernetes_version`` is the
        version to behave like: ``1.34``, ``1.35`` or ``1.36``, the default. ``feature_gates`` are switched on
        or off; only ``ShardedListAndWatch`` of 1.36 is implemented. ``scenario`` (a file, a mapping or a
        :class:`envtest.scenarios.scenario.Scenario`) says which nodes there are and what happens to pods; it
        enables the simulated nodes and scheduler. With ``plaintext``, it is also served without TLS, at
        :attr:`EmbeddedControlPlane.plaintext_url` on 127.0.0.1: TLS takes a third of the CPU time of a test that starts
        an operator in its own process. Raises TypeError for an argument of a wrong type, ValueError
        for an invalid one, ScenarioError, which is a ValueError, and OSError for the file of the scenario.
        """
        return EmbeddedControlPlane(
            port=port,
            host=host,
            crds=checked_sources("crds", crds),
            controllers=controllers,
            token=token,
            token_auth_file=token_auth_file,
            audit_log=audit_log,
            data_dir=data_dir,
            service_cluster_ip_range=service_cluster_ip_range,
            kubernetes_version=kubernetes_version,
            feature_gates=feature_gates,
            scenario=_scenario(scenario),
            plaintext=plaintext,
        )

    @staticmethod
    def restore(
        path: Path | str,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        controllers: Sequence[str] = DEFAULT,
        audit_log: Path | str | None = None,
        scenario: ScenarioSource | None = None,
    ) -> EmbeddedControlPlane:
        """Return a control plane with the state that :meth:`EmbeddedControlPlane.snapshot` wrote to ``path``.

        Objects, CA, tokens, the Kubernetes version, the network of cluster IPs and the time are the same as when the
        file was written; history is not, so older watches get 410. The other parameters are those of :meth:`embedded`.
        ``start`` raises :class:`envtest.planes.snapshots.SnapshotError` if the file cannot be used.
        """
        return EmbeddedControlPlane(
            port=port,
            host=host,
            crds=[],
            controllers=controllers,
            token=None,
            token_auth_file=None,
            audit_log=audit_log,
            snapshot=checked_path("path", path),
            scenario=_scenario(scenario),
        )

    @staticmethod
    def real(
        *,
        crds: Iterable[Manifests] = (),
        assets: Path | str | None = None,
        controllers: Sequence[str] = DEFAULT,
        service_cluster_ip_range: str = str(DEFAULT_SERVICE_NETWORK),
        audit_log: Path | str | None = None,
    ) -> RealControlPlane:
        """Return a control plane that runs etcd and kube-apiserver from ``assets``, by default ``$KUBEBUILDER_ASSETS``.

        If the folder contains kube-controller-manager, it runs ``controllers``, which have the same names and default
        as those of :meth:`embedded`. ``service_cluster_ip_range`` is the network of cluster IPs. ``audit_log`` is a
        file that receives audit events. Raises StartFailed if neither is set, ValueError for a controller that
        kube-controller-manager does not have.
        """
        return RealControlPlane(
            crds=checked_sources("crds", crds),
            assets=assets,
            controllers=controllers,
            service_cluster_ip_range=service_cluster_ip_range,
            audit_log=audit_log,
        )

    @staticmethod
    def auto(
        *, crds: Iterable[Manifests] = (), controllers: Sequence[str] = DEFAULT
    ) -> ControlPlane:
        """Return the real control plane if ``$KUBEBUILDER_ASSETS`` is set, otherwise the embedded one."""
        if os.environ.get("KUBEBUILDER_ASSETS"):
            return ControlPlane.real(crds=crds, controllers=controllers)
        return ControlPlane.embedded(crds=crds, controllers=controllers)


class EmbeddedControlPlane(EmbeddedServer, ControlPlane):
    """The API server of this package; see :meth:`ControlPlane.embedded`."""


class RealControlPlane(RealServer, ControlPlane):
    """The real etcd and kube-apiserver; see :meth:`ControlPlane.real`."""
