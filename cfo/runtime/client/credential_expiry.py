"""When credentials expire: tokens of auth providers, and credentials that exec plugins return."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

_EXPIRY_MARGIN: Final = timedelta(minutes=5)


def is_id_token_valid(token: str, now: datetime) -> bool:
    """Return whether a JWT is valid for another five minutes. Raises :class:`ValueError` for other strings."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("JWT tokens should contain 3 period-delimited parts")
    claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    try:
        expiry = claims.get("exp")
        return expiry is None or datetime.fromtimestamp(expiry, UTC) > now + _EXPIRY_MARGIN
    except (AttributeError, TypeError, ArithmeticError, OSError) as error:
        raise ValueError(str(error)) from None


def is_access_token_valid(expiry: object, now: datetime) -> bool:
    """Return whether a token that expires at ``expiry`` (RFC 3339) is valid for another five minutes."""
    try:
        return _parse(expiry) > now + _EXPIRY_MARGIN
    except ValueError:
        return False


def plugin_expiry(status: Mapping[str, Any], certificate: bytes) -> datetime | None:
    """Return when the credentials of an exec plugin expire, ``None`` if that is unknown."""
    try:
        if status.get("expirationTimestamp"):
            return _parse(status["expirationTimestamp"])
        if certificate:
            # only needed if an exec plugin returns certificates
            from cfo.runtime.pki.certificates import load_certificate

            return load_certificate(certificate).not_valid_after_utc
    except ValueError:
        pass
    return None


def _parse(timestamp: object) -> datetime:
    moment = datetime.fromisoformat(str(timestamp))
    return moment.replace(tzinfo=moment.tzinfo or UTC)
