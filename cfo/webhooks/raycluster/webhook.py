"""The defaulting and validating webhook of RayClusters, and its registration with a manager."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

from cfo.api.raycluster.facts import Concern
from cfo.api.raycluster.names import CLIENT_LIMIT, DASHBOARD_LIMIT, RAY_CLUSTER
from cfo.api.raycluster.spec_warnings import spec_warnings
from cfo.api.reading import elements, mapping
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings
from cfo.config.part import EVERYTHING, Part
from cfo.runtime import (
    APIError,
    DiscoveryIncomplete,
    FieldError,
    FieldErrors,
    Manager,
    Object,
    TransportError,
    is_deleting,
)
from cfo.runtime.webhook import AdmissionRequest, Denied, Validator
from cfo.webhooks.queue_labels import queue_label_warnings
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import Images, InjectionSettings
from cfo.webhooks.raycluster.older_versions import OlderVersions
from cfo.webhooks.raycluster.validation import (
    create_errors,
    submission_errors,
    update_errors,
)
from cfo.webhooks.unreconciled import within_part

# From apimachinery's SimpleNameGenerator: no vowels, and no characters that can be mistaken for others.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM_LENGTH: Final = 5
_GENERATED_LIMIT: Final = 63 - _RANDOM_LENGTH

_INJECTED_BYTES: Final = 2 << 10
"""About the size of what is injected into one group, which determines the work of a review."""


@dataclass(frozen=True, eq=False)
class RayClusterWebhook(Validator[Object]):
    """The defaulter and validator of RayClusters.

    ``version`` is written into the version annotation of new RayClusters. ``settings_of`` returns the settings for a
    namespace, ``has_oauth_server`` whether OpenShift's OAuth server logs users in, and ``ingress_domain`` the domain;
    the last two may be unknown at startup. If one of these raises an error, all requests are denied with 503, because
    entries that are missing in a new RayCluster are never injected later.
    """

    _: KW_ONLY
    version: str
    images: Images
    settings_of: Callable[[str], Awaitable[NamespaceSettings]]
    has_oauth_server: Callable[[], Awaitable[bool]]
    ingress_domain: Callable[[], Awaitable[str]]

    async def default(self, obj: Object, request: AdmissionRequest) -> Object:
        """Return the object with everything injected; warn about replaced and reverted entries."""
        if is_deleting(obj) and request.old_object is not None:
            return obj
        settings = await self._settings(request.namespace)
        _weigh(obj, settings, request)
        result = await request.compute(
            default, _with_name(obj, request), request.old_object, settings
        )
        request.warn(*result.warnings)
        return result.cluster

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
        """Raise :class:`FieldErrors` if the RayCluster is invalid."""
        settings = await self._settings(request.namespace)
        _weigh(obj, settings, request)
        errors = await request.compute(create_errors, obj, settings)
        if errors:
            raise FieldErrors(errors)
        request.warn(*spec_warnings(obj), *queue_label_warnings(obj))

    async def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        """Raise :class:`FieldErrors` if the update is invalid; a RayCluster that is being deleted is not validated."""
        if is_deleting(obj):
            return
        settings = await self._settings(request.namespace)
        _weigh(obj, settings, request)
        errors = await request.compute(update_errors, old, obj, settings)
        if errors:
            raise FieldErrors(errors)
        request.warn(*spec_warnings(obj, old), *queue_label_warnings(obj, old))

    async def submission_errors(
        self, cluster: Object, request: AdmissionRequest
    ) -> list[FieldError]:
        """Return the errors with which ``cluster`` would be refused if it were created in the namespace of ``request``.

        For webhooks of objects from which RayClusters are created later. ``request`` is the request for such an object.
        """
        settings = await self._settings(request.namespace)
        _weigh(cluster, settings, request)
        return await request.compute(submission_errors, _with_name(cluster, request), settings)

    async def _settings(self, namespace: str) -> InjectionSettings:
        try:
            return await self._read_settings(namespace)
        except (DiscoveryIncomplete, APIError, TransportError) as error:
            message = f"cannot determine which entries to inject into the RayCluster, try again later: {error}"
            raise Denied(message, code=503, reason="ServiceUnavailable") from error

    async def _read_settings(self, namespace: str) -> InjectionSettings:
        settings = await self.settings_of(namespace)
        config = settings.kuberay
        authentication = None
        oauth = False
        if config.ray_dashboard_oauth_enabled:
            if config.authentication.enabled:
                authentication = config.authentication
            else:
                oauth = await self.has_oauth_server()
        ingress_domain = ""
        if config.mtls_enabled:
            ingress_domain = await self.ingress_domain()
        return InjectionSettings(
            version=self.version,
            oauth=oauth,
            authentication=authentication,
            mtls=config.mtls_enabled,
            ingress_domain=ingress_domain,
            kuberay_features=frozenset(config.kuberay_features),
            requests_certificates=config.ca.issuer == "certificateSigningRequest",
            profile=settings.profile,
            enforced=frozenset(Concern(name) for name in settings.enforced),
            host_limit=_host_limit(config, oauth=oauth),
            images=self.images,
        )


def _host_limit(config: KubeRayConfiguration, *, oauth: bool) -> int:
    """Return how long names in hosts can be; 0 if the operator exposes no dashboard, as by default on Kubernetes.

    ``oauth``: OpenShift's OAuth server logs users in.
    """
    is_exposed = (
        oauth
        or not config.ray_dashboard_oauth_enabled
        or config.authentication.enabled
        or "authOptions" in config.kuberay_features
    )
    if not is_exposed:
        return 0
    if not config.gateway.dashboard_host:
        return DASHBOARD_LIMIT
    return CLIENT_LIMIT if config.gateway.client_listener else 0


def _weigh(cluster: Object, settings: InjectionSettings, request: AdmissionRequest) -> None:
    """Count what is injected into each group as work of ``request``; the JSON types of ``cluster`` are not checked."""
    if not settings.mtls:
        return  # only the head gets proxies
    workers = elements(mapping(cluster.get("spec")).get("workerGroupSpecs"))
    request.weigh((1 + len(workers)) * _INJECTED_BYTES)


def _with_name(obj: Object, request: AdmissionRequest) -> Object:
    """Return the object with its final name, because the injected entries contain names that derive from it.

    API servers generate the name from ``generateName`` only after admission.
    """
    metadata = dict(obj.get("metadata") or {})
    prefix = metadata.get("generateName")
    if prefix and not metadata.get("name"):
        suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
        metadata["name"] = f"{prefix[:_GENERATED_LIMIT]}{suffix}"
    if request.namespace:
        metadata.setdefault("namespace", request.namespace)
    return {**obj, "metadata": metadata}


def setup(manager: Manager, webhook: RayClusterWebhook, part: Part = EVERYTHING) -> None:
    """Register the webhook of RayClusters with ``manager``, which serves it on every replica.

    ``part`` is what this operator reconciles. Others get the same entries, because another operator may reconcile them.
    """
    manager.webhooks.register(
        RAY_CLUSTER,
        defaulter=webhook,
        validator=within_part(OlderVersions(webhook, manager.client), part),
        defaulter_name="mraycluster.ray.openshift.ai",
        validator_name="vraycluster.ray.openshift.ai",
        # A later webhook can hand the RayCluster to another actor, and then nothing may be injected.
        reinvocation_policy="IfNeeded",
    )
