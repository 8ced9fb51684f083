"""Creates a FluxSetup at start if the cluster has none, so that FluxJobs run before an administrator creates one."""

from __future__ import annotations

import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from cfo.api.flux import FLUX_SETUP
from cfo.api.flux.names import FIELD_MANAGER
from cfo.config import DefaultSetupConfiguration
from cfo.runtime import AlreadyExists, APIError, Client, Informer, LabelSelector, Manager, Object, TransportError

__all__ = ["DefaultSetup", "create_default", "default_setup"]

_log = structlog.get_logger("cfo.controllers.flux")


def default_setup(config: DefaultSetupConfiguration, namespace: str, selector: LabelSelector | None = None) -> Object:
    """Return the FluxSetup ``default`` in the operator's ``namespace``, for all namespaces.

    It has labels that ``selector`` selects, so that an operator with this selector sees it.
    """
    requirements = selector.requirements if selector is not None else ()
    labels = {each.key: next(iter(each.values), "") for each in requirements if each.operator in ("In", "Exists")}
    return {
        "apiVersion": FLUX_SETUP.api_version,
        "kind": FLUX_SETUP.kind,
        "metadata": {"name": "default", "namespace": namespace, "labels": labels},
        "spec": {
            "max-size": config.max_size,
            "mini-cluster": {"size": config.mini_cluster_size},
            "namespaceSelector": {},
            "queueingStrategy": config.queueing_strategy,
        },
    }


class DefaultSetup:
    """Creates the FluxSetup once, on the leader, after the informer of FluxSetups has synced."""

    name = "flux-default-setup"
    needs_leader = True

    def __init__(self, client: Client, setups: Informer, desired: Object) -> None:
        self._client = client
        self._setups = setups
        self._desired = desired

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Create the FluxSetup if there is none. A failure is logged, and does not stop the operator."""
        task_status.started()
        await self._setups.wait_for_sync()
        if len(self._setups.reader):
            return
        try:
            await self._client.create(self._desired)
        except AlreadyExists:
            return
        except (APIError, TransportError) as error:
            _log.error("Failed to create the default FluxSetup", error=str(error))
            return
        _log.info("Created the default FluxSetup", namespace=self._desired["metadata"]["namespace"])


def create_default(manager: Manager, config: DefaultSetupConfiguration, namespace: str) -> None:
    """Let ``manager`` create the default FluxSetup in the operator's ``namespace``."""
    client = manager.client.with_field_manager(FIELD_MANAGER)
    setups = manager.cache.informer(FLUX_SETUP)
    manager.add(DefaultSetup(client, setups, default_setup(config, namespace, setups.selection.label_selector)))
