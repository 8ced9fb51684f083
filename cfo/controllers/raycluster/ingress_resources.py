"""The desired Ingresses of a RayCluster on vanilla Kubernetes, for each IngressClass: pure functions.

Ingress has no field to pass TLS through, or to connect to a backend that serves HTTPS, so the controller of each class
has annotations of its own. Some have none: they need a kind of their own, or a Gateway.

Sources: the annotation references of ingress-nginx, F5's NGINX Ingress Controller (which passes TLS through only
with its kind TransportServer), HAProxy Technologies' controller 3.2 and HAProxy Ingress 0.15; Traefik's reference
(IngressRouteTCP); the admission plugin DefaultIngressClass of Kubernetes (which class is the default).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from cfo.api.raycluster.cluster import child_object
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import DEFAULT_CLASS_ANNOTATION, client_host, dashboard_host
from cfo.config.network import IngressConfiguration
from cfo.controllers.raycluster.dashboard_access import Backend
from cfo.runtime import INGRESS, Object, annotations_of, name_of

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
    ingress_class: IngressClass,
) -> Object:
    """Return the Ingress of the dashboard, which targets ``backend``.

    With ``requires_tls``, the Ingress has TLS even without a configured Secret, so that ingress controllers redirect
    HTTP, and tokens and cookies are not sent over it: they then use their default certificate. ``ingress_class`` should
    have annotations for ``backend`` if that serves HTTPS; configured annotations are added.
    """
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
    ingress_class: IngressClass,
) -> Object:
    """Return the Ingress of the Ray client. Clients find it by the port number of its backend.

    ``ingress_class`` must have annotations for passthrough: Ray verifies the certificates.
    """
    return _ingress(
        facts,
        facts.names.client,
        client_host(facts.cluster, domain, suffix),
        path_type="ImplementationSpecific",
        service={
            "name": facts.head_service,
            "port": {"number": facts.ports.service_port("client")},
        },
        config=config,
        class_name=ingress_class.name,
        annotations=ingress_class.passthrough,
    )


def target_services(ingress: Mapping[str, Any]) -> set[str]:
    """Return the names of the Services that the rules of a stored Ingress target."""
    rules = (ingress.get("spec") or {}).get("rules") or ()
    paths = (path for rule in rules for path in (rule.get("http") or {}).get("paths") or ())
    return {
        str(((path.get("backend") or {}).get("service") or {}).get("name") or "") for path in paths
    }


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
    ingress = child_object(
        facts.cluster, INGRESS, name, spec={"rules": [{"host": host, "http": {"paths": [path]}}]}
    )
    if class_name:
        ingress["spec"]["ingressClassName"] = class_name
    effective_annotations = annotations if config.annotations is None else config.annotations
    if effective_annotations:
        ingress["metadata"]["annotations"] = dict(effective_annotations)
    return ingress


NGINX_CLASS: Final = "nginx"
"""The class of client Ingresses that the Go operator always sets."""

_INGRESS_NGINX = "k8s.io/ingress-nginx"
_F5_NGINX = "nginx.org/ingress-controller"
_HAPROXY_TECHNOLOGIES = "haproxy.org/ingress-controller"
_HAPROXY_INGRESS = "haproxy-ingress.github.io/controller"

_PASSTHROUGH: Final[Mapping[str, Mapping[str, str]]] = {
    _INGRESS_NGINX: {
        "nginx.ingress.kubernetes.io/rewrite-target": "/",
        "nginx.ingress.kubernetes.io/ssl-passthrough": "true",
        "nginx.ingress.kubernetes.io/ssl-redirect": "true",
    },
    _HAPROXY_TECHNOLOGIES: {"haproxy.org/ssl-passthrough": "true"},
    _HAPROXY_INGRESS: {"haproxy-ingress.github.io/ssl-passthrough": "true"},
}
_SERVICE = "{service}"
_HTTPS_BACKEND: Final[Mapping[str, Mapping[str, str]]] = {
    _INGRESS_NGINX: {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
    _F5_NGINX: {"nginx.org/ssl-services": _SERVICE},
    _HAPROXY_TECHNOLOGIES: {"haproxy.org/server-ssl": "true"},
    _HAPROXY_INGRESS: {"haproxy-ingress.github.io/backend-protocol": "h1-ssl"},
}


class IngressClass(msgspec.Struct, frozen=True):
    """The class of an Ingress.

    ``name``: ``ingressClassName``; empty if it is not set, and then the API server sets the default class.
    ``controller``: ``spec.controller`` of the class; empty if the class does not exist.
    """

    name: str
    controller: str

    @property
    def passthrough(self) -> dict[str, str] | None:
        """The annotations with which the controller passes TLS through; ``None`` if it has none."""
        found = _PASSTHROUGH.get(_family_of(self.controller))
        return dict(found) if found is not None else None

    def https_backend(self, service: str) -> dict[str, str] | None:
        """Return the annotations for a backend ``service`` that serves HTTPS; ``None`` if the controller has none.

        These controllers encrypt the connection, but do not verify the certificate of the backend.
        """
        found = _HTTPS_BACKEND.get(_family_of(self.controller))
        if not found:
            return None
        return {key: service if value == _SERVICE else value for key, value in found.items()}

    def __str__(self) -> str:
        return f"IngressClass {self.name}" if self.name else "the default IngressClass"


def choose_ingress_class(
    configured: str | None, preferred: str, classes: Iterable[Mapping[str, Any]] | None
) -> IngressClass:
    """Return the class of an Ingress.

    ``configured``: ``kuberay.ingress.className``, which takes precedence. ``preferred``: the class otherwise, unless it
    does not exist and there is a default class. ``classes``: all IngressClasses; ``None`` if the operator cannot read
    them, and then the controller is assumed to be ingress-nginx, as the Go operator does.
    """
    name = preferred if configured is None else configured
    if classes is None:
        return IngressClass(name, _INGRESS_NGINX)
    by_name = {name_of(item): item for item in classes}
    default = _default_class(by_name.values())
    if configured is None and name and name not in by_name:
        name = default or name
    effective = name or default
    if effective in by_name:
        controller = (by_name[effective].get("spec") or {}).get("controller") or ""
        return IngressClass(name, str(controller))
    if effective in ("", NGINX_CLASS):
        return IngressClass(name, _INGRESS_NGINX)
    return IngressClass(name, "")


def _default_class(classes: Iterable[Mapping[str, Any]]) -> str:
    """Return the name of the newest default class, the first by name of several; empty if there is none."""
    defaults = [
        item for item in classes if annotations_of(item).get(DEFAULT_CLASS_ANNOTATION) == "true"
    ]
    if not defaults:
        return ""
    defaults.sort(key=name_of)
    newest = max(defaults, key=lambda item: str(item["metadata"].get("creationTimestamp") or ""))
    return name_of(newest)


def _family_of(controller: str) -> str:
    """Return the well-known controller that ``controller`` is an instance of; controllers can append a suffix."""
    if controller.startswith("k8s.io/") and "ingress-nginx" in controller:
        return _INGRESS_NGINX
    for family in (_F5_NGINX, _HAPROXY_TECHNOLOGIES, _HAPROXY_INGRESS):
        if controller == family or controller.startswith(f"{family}/"):
            return family
    return controller
