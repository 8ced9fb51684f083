"""What the controller of an IngressClass needs to pass TLS through, and to connect to a backend that serves HTTPS.

Ingress has no field for either, so each controller has annotations of its own. Some have none: they need a kind of
their own, or a Gateway. Everything here is pure.

Sources: the annotation references of ingress-nginx, F5's NGINX Ingress Controller (which passes TLS through only with
its kind TransportServer), HAProxy Technologies' controller 3.2 and HAProxy Ingress 0.15; Traefik's reference
(IngressRouteTCP); the admission plugin DefaultIngressClass of Kubernetes (which class is the default).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cfo.runtime import annotations_of, name_of

__all__ = ["NGINX_CLASS", "IngressClass", "choose_ingress_class"]

NGINX_CLASS: Final = "nginx"
"""The class of client Ingresses that the Go operator always sets."""

_DEFAULT_CLASS_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"
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


@dataclass(frozen=True, slots=True)
class IngressClass:
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
        return {key: service if value == _SERVICE else value for key, value in found.items()} if found else None

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
        return IngressClass(name, str((by_name[effective].get("spec") or {}).get("controller") or ""))
    return IngressClass(name, _INGRESS_NGINX if effective in ("", NGINX_CLASS) else "")


def _default_class(classes: Iterable[Mapping[str, Any]]) -> str:
    """Return the name of the newest default class, the first by name of several; empty if there is none."""
    defaults = sorted(
        (item for item in classes if annotations_of(item).get(_DEFAULT_CLASS_ANNOTATION) == "true"), key=name_of
    )
    newest = max(defaults, key=lambda item: str(item["metadata"].get("creationTimestamp") or ""), default=None)
    return name_of(newest) if newest is not None else ""


def _family_of(controller: str) -> str:
    """Return the well-known controller that ``controller`` is an instance of; controllers can append a suffix."""
    if controller.startswith("k8s.io/") and "ingress-nginx" in controller:
        return _INGRESS_NGINX
    for family in (_F5_NGINX, _HAPROXY_TECHNOLOGIES, _HAPROXY_INGRESS):
        if controller == family or controller.startswith(f"{family}/"):
            return family
    return controller
