"""Names of container images: their tags, which decide when kubelets pull them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["image_pull_policy"]

_HUB: Final = "docker.io"
_DOMAIN: Final = re.compile(
    r"([a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*(\.[a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*)*|\[[a-fA-F0-9:]+\])(:[0-9]+)?"
)
_REPOSITORY: Final = re.compile(r"{0}(/{0})*".format(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"))
_TAG: Final = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}")
_IDENTIFIER: Final = re.compile(r"[a-f0-9]{64}")
_MAX_REPOSITORY: Final = 255


def image_pull_policy(image: str) -> str:
    """Return ``Always`` for the tag ``latest``, which is also the default tag, and ``IfNotPresent`` otherwise.

    A reference that cannot be parsed has no tag.
    """
    return "Always" if _tag(image) == "latest" else "IfNotPresent"


def _tag(image: str) -> str:
    """Return the tag of an image; ``latest`` without tag and digest, empty if the reference cannot be parsed."""
    if _IDENTIFIER.fullmatch(image):
        return ""
    domain, remote = _domain_and_remote(image)
    name, at, digest = remote.partition("@")
    path, colon, tag = name.partition(":")
    if not _DOMAIN.fullmatch(domain):
        path = f"{domain}/{path}"
    if len(path) > _MAX_REPOSITORY or not _REPOSITORY.fullmatch(path):
        return ""
    if colon and not _TAG.fullmatch(tag):
        return ""
    if at and not _DIGEST.fullmatch(digest):
        return ""
    if colon or at:
        return tag
    return "latest"


def _domain_and_remote(image: str) -> tuple[str, str]:
    """Split a reference into the host of the registry and the rest; Docker Hub is the default."""
    domain, slash, remote = image.partition("/")
    is_host = domain == "localhost" or "." in domain or ":" in domain or domain != domain.lower()
    if not slash or not is_host:
        domain = _HUB
        remote = image
    if domain == "index.docker.io":
        domain = _HUB
    if domain == _HUB and "/" not in remote:
        remote = f"library/{remote}"
    return domain, remote
