"""How OpenShift logs users in: by its own OAuth server, or by another one."""

from __future__ import annotations

from typing import Final

from cfo.runtime import Object

_EXTERNAL: Final = ("OIDC", "None")


def uses_oauth_server(authentication: Object | None) -> bool:
    """Return whether OpenShift's own OAuth server logs users in; ``authentication`` is the object of that kind.

    It does not if the type is ``OIDC`` or ``None``, and it does if the object does not exist.
    """
    spec = (authentication or {}).get("spec") or {}
    return spec.get("type") not in _EXTERNAL
