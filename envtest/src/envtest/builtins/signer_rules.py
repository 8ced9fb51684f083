"""Validation of names: of signers, and trust bundles with a signer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from envtest.apimachinery.field_errors import FieldError, go_quote, invalid, required, too_long
from envtest.apimachinery.name_rules import dns_label, dns_subdomain

__all__ = ["is_kubernetes_signer", "signer_errors", "trust_bundle_name_problems"]

_MAX_DOMAIN: Final = 253
_MAX_NAME: Final = 317
_DOMAIN: Final = "kubernetes.io"


def signer_errors(signer: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of the name of a signer: ``DOMAIN/NAME``."""
    if not signer:
        yield required(path)
        return
    if signer.count("/") != 1:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, signer, why)
        return
    domain, _, name = signer.partition("/")
    if len(domain) > _MAX_DOMAIN:
        yield too_long(path, domain, _MAX_DOMAIN)
    for part, problems in ((domain, dns_label), (name, dns_subdomain)):
        for label in part.split("."):
            for problem in problems(label):
                yield invalid(path, part, f"validating label {go_quote(label)}: {problem}")
    if "." not in domain:
        yield invalid(
            path, domain, "should be a domain with at least two segments separated by dots"
        )
    if len(name) > _MAX_NAME:
        yield too_long(path, name, _MAX_NAME)


def is_kubernetes_signer(signer: str) -> bool:
    """Return whether a signer belongs to Kubernetes, whose certificates live for one day at most."""
    domain = signer.partition("/")[0]
    return domain == _DOMAIN or domain.endswith(f".{_DOMAIN}")


def trust_bundle_name_problems(name: str) -> list[str]:
    """Return why ``name`` is not the name of a ClusterTrustBundle: ``NAME``, or ``DOMAIN:SIGNER:NAME``."""
    prefix, colon, short = name.rpartition(":")
    if not colon:
        return dns_subdomain(name)
    if not prefix:
        return ['ClusterTrustBundle without signer name must not have ":" in its name']
    return dns_subdomain(short)
