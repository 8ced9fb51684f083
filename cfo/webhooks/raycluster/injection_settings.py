"""The settings that the injection into RayClusters depends on: configuration, platform and images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from cfo.api.raycluster.responsibility import Concern
from cfo.config import AuthenticationConfiguration


@dataclass(frozen=True, slots=True)
class Images:
    """The images of the injected containers; the defaults of the first two equal the Go operator's."""

    oauth_proxy: str = (
        "registry.redhat.io/openshift4/ose-oauth-proxy"
        "@sha256:1ea6a01bf3e63cdcf125c6064cbd4a4a270deaf0f157b3eabb78f60556840366"
    )
    cert_generator: str = (
        "registry.redhat.io/ubi9@sha256:770cf07083e1c85ae69c25181a205b7cdef63c11b794c89b3b487d4670b4c328"
    )
    oauth2_proxy: str = "quay.io/oauth2-proxy/oauth2-proxy:v7.15.3"
    kube_rbac_proxy: str = "quay.io/brancz/kube-rbac-proxy:v0.21.0"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Images:
        """Return the images in the variables ``OAUTH_PROXY_IMAGE``, ``CERT_GENERATOR_IMAGE`` and so on.

        An unset or empty variable means the default.
        """
        given = {image.name: environment.get(f"{image.name.upper()}_IMAGE") for image in fields(cls)}
        return cls(**{name: image for name, image in given.items() if image})


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionSettings:
    """The settings for one admission request.

    ``version`` is the operator's version, written into the version annotation of new RayClusters. ``oauth`` is whether
    dashboards get OpenShift's OAuth proxy: it is configured, and the platform is OpenShift. ``authentication`` is the
    configuration of the proxies that dashboards get instead; ``None`` if they do not. ``mtls`` is whether Ray nodes use
    mutual TLS. ``ingress_domain`` is the domain of the client's host; empty if there is none. ``kuberay_features`` are
    the features of other actors that are known to be active (:mod:`cfo.api.raycluster.responsibility`).
    ``requests_certificates`` is whether Ray nodes request their certificates from the operator, instead of signing them
    with the key of the CA.
    ``profile`` is the name of the profile of the namespace, and ``enforced`` is what it enforces.
    """

    version: str
    oauth: bool
    mtls: bool
    authentication: AuthenticationConfiguration | None = None
    ingress_domain: str = ""
    kuberay_features: frozenset[str] = frozenset()
    requests_certificates: bool = False
    profile: str = ""
    enforced: frozenset[Concern] = frozenset()
    images: Images = field(default_factory=Images)
