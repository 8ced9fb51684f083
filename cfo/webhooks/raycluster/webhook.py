"""Defaulter and validator of RayClusters: what is pure in this package, asked by an API server."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.config import KubeRayConfiguration
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.discovery import DiscoveryIncomplete
from cfo.runtime.field import FieldErrors
from cfo.runtime.manager import Manager
from cfo.runtime.objects import Object, is_deleting
from cfo.runtime.webhook.admission import AdmissionRequest, Denied
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.settings import Images, Settings
from cfo.webhooks.raycluster.validation import created_errors, updated_errors

__all__ = ["RayClusterWebhook", "register"]

# apimachinery's SimpleNameGenerator: no vowels, and nothing that looks like something else
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM_LENGTH: Final = 5
_GENERATED_LIMIT: Final = 63 - _RANDOM_LENGTH


class RayClusterWebhook:
    """Judges RayClusters by the configuration and by where the operator runs.

    ``is_openshift`` and ``ingress_domain`` tell what may not be known from the start; they raise where it cannot be
    known now, and then nothing is admitted, for what is left out of a new cluster stays out.
    """

    def __init__(
        self,
        config: KubeRayConfiguration,
        *,
        version: str,
        images: Images,
        is_openshift: Callable[[], Awaitable[bool]],
        ingress_domain: Callable[[], Awaitable[str]],
    ) -> None:
        self._config = config
        self._version = version
        self._images = images
        self._is_openshift = is_openshift
        self._ingress_domain = ingress_domain

    async def default(self, obj: Object, request: AdmissionRequest) -> Object:
        """The object with all that is injected; warns of what had to give way to that."""
        if is_deleting(obj):
            return obj
        made = default(_addressed(obj, request), request.old_object, await self._settings())
        request.warn(*made.warnings)
        return made.cluster

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
        """Raises :class:`FieldErrors`."""
        FieldErrors.check(created_errors(obj, await self._settings()))

    async def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        """Raises :class:`FieldErrors`; a cluster that is being deleted is not asked about."""
        if not is_deleting(obj):
            FieldErrors.check(updated_errors(old, obj, await self._settings()))

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None:
        """Anybody who may delete a RayCluster may."""

    async def _settings(self) -> Settings:
        config = self._config
        try:
            return Settings(
                version=self._version,
                oauth=config.ray_dashboard_oauth_enabled and await self._is_openshift(),
                mtls=config.mtls_enabled,
                ingress_domain=await self._ingress_domain() if config.mtls_enabled else "",
                images=self._images,
            )
        except (DiscoveryIncomplete, APIError, TransportError) as error:
            message = f"what to inject into a RayCluster cannot be known now, try again: {error}"
            raise Denied(message, code=503, reason="ServiceUnavailable") from error


def _addressed(obj: Object, request: AdmissionRequest) -> Object:
    """The object with the name that it is going to have: what is injected holds names that derive from it.

    An API server makes names from ``generateName`` only after admission.
    """
    metadata = dict(obj.get("metadata") or {})
    prefix = metadata.get("generateName")
    if prefix and not metadata.get("name"):
        suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
        metadata["name"] = f"{prefix[:_GENERATED_LIMIT]}{suffix}"
    if request.namespace:
        metadata.setdefault("namespace", request.namespace)
    return {**obj, "metadata": metadata}


def register(
    manager: Manager,
    config: KubeRayConfiguration,
    *,
    version: str,
    is_openshift: Callable[[], Awaitable[bool]],
    ingress_domain: Callable[[], Awaitable[str]],
    environment: Mapping[str, str],
) -> None:
    """Serves the admission of RayClusters on every replica of ``manager``; see :class:`RayClusterWebhook`.

    ``version`` is what new clusters are marked with; ``environment`` may name the images
    (:meth:`~cfo.webhooks.raycluster.settings.Images.of`).
    """
    webhook = RayClusterWebhook(
        config,
        version=version,
        images=Images.of(environment),
        is_openshift=is_openshift,
        ingress_domain=ingress_domain,
    )
    manager.webhooks.register(
        RAY_CLUSTER,
        defaulter=webhook,
        validator=webhook,
        defaulter_name="mraycluster.ray.openshift.ai",
        validator_name="vraycluster.ray.openshift.ai",
    )
