"""What admission depends on beside the object: the configuration, and what there is around the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Images", "Settings"]

_OAUTH_PROXY: Final = (
    "registry.redhat.io/openshift4/ose-oauth-proxy"
    "@sha256:1ea6a01bf3e63cdcf125c6064cbd4a4a270deaf0f157b3eabb78f60556840366"
)
_CERT_GENERATOR: Final = (
    "registry.redhat.io/ubi9@sha256:770cf07083e1c85ae69c25181a205b7cdef63c11b794c89b3b487d4670b4c328"
)


@dataclass(frozen=True, slots=True)
class Images:
    """The images of what is injected; the defaults are the Go operator's."""

    oauth_proxy: str = _OAUTH_PROXY
    cert_generator: str = _CERT_GENERATOR

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Images:
        """Those which ``OAUTH_PROXY_IMAGE`` and ``CERT_GENERATOR_IMAGE`` name; unset or empty: the defaults."""
        return cls(
            environment.get("OAUTH_PROXY_IMAGE") or _OAUTH_PROXY,
            environment.get("CERT_GENERATOR_IMAGE") or _CERT_GENERATOR,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How RayClusters are treated now.

    ``version`` is the operator's, which a new cluster is marked with. ``oauth``: dashboards get an OAuth proxy (it is
    configured, and this is OpenShift); ``mtls``: nodes talk mutual TLS. ``ingress_domain`` is that of the client's
    host; empty: there is none.
    """

    version: str
    oauth: bool
    mtls: bool
    ingress_domain: str = ""
    images: Images = field(default_factory=Images)
