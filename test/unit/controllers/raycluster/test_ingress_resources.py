"""Tests of an Ingress's class, and of the annotations that its controller needs."""

from __future__ import annotations

import pytest

from cfo.controllers.raycluster.ingress_resources import IngressClass, choose_ingress_class
from cfo.runtime.objects.unstructured import Object

NGINX = "k8s.io/ingress-nginx"


OLDER, NEWER = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def ingress_class(
    name: str, controller: str, *, default: bool = False, created: str = OLDER
) -> Object:
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"} if default else {}
    metadata = {"name": name, "creationTimestamp": created, "annotations": annotations}
    return {"metadata": metadata, "spec": {"controller": controller}}


HAPROXY = ingress_class("haproxy", "haproxy.org/ingress-controller/haproxy", default=True)
TRAEFIK = ingress_class("traefik", "traefik.io/ingress-controller")
COMMUNITY = ingress_class("nginx", NGINX)


@pytest.mark.parametrize(
    ("configured", "classes", "expected"),
    [
        (None, None, ("nginx", NGINX)),
        (None, [], ("nginx", NGINX)),
        (None, [TRAEFIK], ("nginx", NGINX)),
        (None, [TRAEFIK, HAPROXY], ("haproxy", "haproxy.org/ingress-controller/haproxy")),
        (None, [COMMUNITY, HAPROXY], ("nginx", NGINX)),
        (
            None,
            [ingress_class("nginx", "nginx.org/ingress-controller")],
            ("nginx", "nginx.org/ingress-controller"),
        ),
        ("traefik", [TRAEFIK, HAPROXY], ("traefik", "traefik.io/ingress-controller")),
        ("traefik", None, ("traefik", NGINX)),
        ("missing", [HAPROXY], ("missing", "")),
        ("", [HAPROXY], ("", "haproxy.org/ingress-controller/haproxy")),
        ("", [TRAEFIK], ("", NGINX)),
    ],
)
def test_client_uses_the_configured_class_then_nginx_then_the_default_class(
    configured: str | None, classes: list[Object] | None, expected: tuple[str, str]
) -> None:
    assert choose_ingress_class(configured, "nginx", classes) == IngressClass(*expected)


def test_dashboard_has_no_class_unless_one_is_configured() -> None:
    assert choose_ingress_class(None, "", [HAPROXY]) == IngressClass(
        "", "haproxy.org/ingress-controller/haproxy"
    )
    assert choose_ingress_class("traefik", "", [TRAEFIK]).name == "traefik"


def test_newest_default_class_is_used_as_by_the_api_server() -> None:
    newer = ingress_class("b", "traefik.io/ingress-controller", default=True, created=NEWER)
    same_age = ingress_class("a", "x", default=True, created=NEWER)
    assert choose_ingress_class(None, "nginx", [HAPROXY, newer]).name == "b"
    assert choose_ingress_class(None, "nginx", [HAPROXY, newer, same_age]).name == "a"


@pytest.mark.parametrize(
    ("controller", "passthrough", "https_backend"),
    [
        (
            "k8s.io/internal-ingress-nginx",
            "nginx.ingress.kubernetes.io/ssl-passthrough",
            {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
        ),
        ("nginx.org/ingress-controller", None, {"nginx.org/ssl-services": "svc"}),
        (
            "haproxy.org/ingress-controller",
            "haproxy.org/ssl-passthrough",
            {"haproxy.org/server-ssl": "true"},
        ),
        (
            "haproxy-ingress.github.io/controller/internal",
            "haproxy-ingress.github.io/ssl-passthrough",
            {"haproxy-ingress.github.io/backend-protocol": "h1-ssl"},
        ),
        ("traefik.io/ingress-controller", None, None),
        ("haproxy.org/ingress-controllers", None, None),
        ("", None, None),
    ],
)
def test_annotations_follow_the_controller_of_the_class(
    controller: str, passthrough: str | None, https_backend: dict[str, str] | None
) -> None:
    found = IngressClass("c", controller)
    assert (found.passthrough or {}).get(passthrough or "") == ("true" if passthrough else None)
    assert (found.passthrough is None) == (passthrough is None)
    assert found.https_backend("svc") == https_backend
