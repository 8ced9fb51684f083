"""The policy of a self-managed CA and its serving certificates. Separate, because options need no cryptography."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePolicy:
    """What a self-managed CA and its serving certificates contain, and how long they are valid.

    ``common_name`` and ``organization`` are in the subject of the CA. ``key_algorithm`` is used for new keys: ECDSA
    (P-256), or RSA (2048 bits), which is slow to generate. ``ca_lifetime`` and ``lifetime`` are the lifetimes of the CA
    and of serving certificates; both are renewed when a third of it is left. ``overlap`` is how long a former CA stays
    trusted after it was replaced.
    """

    common_name: str = "webhook-ca"
    organization: str = ""
    key_algorithm: Literal["ecdsa", "rsa"] = "ecdsa"
    ca_lifetime: timedelta = timedelta(days=3650)
    lifetime: timedelta = timedelta(days=365)
    overlap: timedelta = timedelta(hours=1)
