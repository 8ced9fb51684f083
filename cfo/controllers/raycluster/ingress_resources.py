"""The desired Ingresses of a RayCluster on vanilla Kubernetes: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.api.raycluster.authentication import Backend
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.naming import client_host, dashboard_host
from cfo.config import IngressConfiguration
from cfo.controllers.raycluster.ingress_classes import NGINX_CLASS, IngressClass, choose_ingress_class
from cfo.controllers.raycluster.resources import child_object
from cfo.runtime import INGRESS, Object

__all__ = ["desired_client_ingress", "desired_dashboard_ingress", "target_services"]

_HTTPS_FOR_SDK = {"route.openshift.io/termination": "reencrypt"}
"""The annotation by which CodeFlare SDK recognizes a dashboard with HTTPS; OpenShift's router knows it as well."""


def desired_dashboard_ingress(
    facts: RayClusterFacts,
    domain: str,
    config: IngressConfiguration,
    suffix: str = "",
    *,
    backend: Backend,
    requires_tls: bool = False,
    ingress_class: IngressClass | None = None,
) -> Object:
    """Return the Ingress of the dashboard, which targets ``backend``.

    With ``requires_tls``, the Ingress has TLS even without a configured Secret, so that ingress controllers redirect
    HTTP, and tokens and cookies are not sent over it: they then use their default certificate. ``ingress_class`` should
    have annotations for ``backend`` if that serves HTTPS (default: ingress-nginx); configured annotations are added.
    """
    ingress_class = ingress_class or choose_ingress_class(config.class_name, "", None)
    host = dashboard_host(facts.cluster, domain, suffix)
    ingress = _ingress(
        facts,
        facts.names.dashboard,
        host,
        path_type="Prefix",
        service={"name": backend.service, "port": {"name": backend.port_name}},
        config=config,
        class_name=ingress_class.name,
    )
    if backend.tls:
        annotations = {**_HTTPS_FOR_SDK, **(ingress_class.https_backend(backend.service) or {})}
        ingress["metadata"]["annotations"] = {**annotations, **(config.annotations or {})}
    if config.tls_secret_name:
        ingress["spec"]["tls"] = [{"hosts": [host], "secretName": config.tls_secret_name}]
    elif requires_tls:
        ingress["spec"]["tls"] = [{"hosts": [host]}]
    return ingress


def desired_client_ingress(
    facts: RayClusterFacts,
    domain: str,
    config: IngressConfiguration,
    suffix: str = "",
    *,
    ingress_class: IngressClass | None = None,
) -> Object:
    """Return the Ingress of the Ray client. Clients find it by the port number of its backend.

    ``ingress_class`` must have annotations for passthrough (default: ingress-nginx): Ray verifies the certificates.
    """
    ingress_class = ingress_class or choose_ingress_class(config.class_name, NGINX_CLASS, None)
    return _ingress(
        facts,
        facts.names.client,
        client_host(facts.cluster, domain, suffix),
        path_type="ImplementationSpecific",
        service={"name": facts.head_service, "port": {"number": facts.service_port("client")}},
        config=config,
        class_name=ingress_class.name,
        annotations=ingress_class.passthrough,
    )


def target_services(ingress: Mapping[str, Any]) -> set[str]:
    """Return the names of the Services that the rules of a stored Ingress target."""
    rules = (ingress.get("spec") or {}).get("rules") or ()
    paths = (path for rule in rules for path in (rule.get("http") or {}).get("paths") or ())
    return {str(((path.get("backend") or {}).get("service") or {}).get("name") or "") for path in paths}


def _ingress(
    facts: RayClusterFacts,
    name: str,
    host: str,
    *,
    path_type: str,
    service: Mapping[str, Any],
    config: IngressConfiguration,
    class_name: str,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    path = {"path": "/", "pathType": path_type, "backend": {"service": dict(service)}}
    ingress = child_object(facts, INGRESS, name, spec={"rules": [{"host": host, "http": {"paths": [path]}}]})
    if class_name:
        ingress["spec"]["ingressClassName"] = class_name
    effective_annotations = annotations if config.annotations is None else config.annotations
    if effective_annotations:
        ingress["metadata"]["annotations"] = dict(effective_annotations)
    return ingress
