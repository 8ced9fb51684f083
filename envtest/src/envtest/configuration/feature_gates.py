"""Feature gates of kube-apiserver that this API server implements; all others have the default of the version.

``ShardedListAndWatch`` (alpha in 1.36, off by default) is ``shardSelector`` of lists and watches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from envtest.configuration.kubernetes_version import KubernetesVersion

__all__ = [
    "SHARDED_LIST_AND_WATCH",
    "enabled_features",
    "parse_feature_gates",
    "switchable_features",
]

SHARDED_LIST_AND_WATCH: Final = "ShardedListAndWatch"

_INTRODUCED: Final = {SHARDED_LIST_AND_WATCH: (1, 36)}
"""The version that introduced each gate; all of them are off by default."""

_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def parse_feature_gates(items: Iterable[str]) -> dict[str, bool]:
    """Return the gates of a flag, whose items are ``NAME=true`` or ``NAME=false``. Raises ValueError for others."""
    gates: dict[str, bool] = {}
    for item in items:
        name, equals, text = item.strip().partition("=")
        if not equals or text.strip() not in _BOOLEANS:
            raise ValueError(f"feature gate {item!r}: must be NAME=true or NAME=false")
        gates[name.strip()] = _BOOLEANS[text.strip()]
    return gates


def switchable_features(version: KubernetesVersion) -> frozenset[str]:
    """Return the gates that can be switched in this version."""
    return frozenset(name for name, introduced in _INTRODUCED.items() if introduced <= version[:2])


def enabled_features(gates: Mapping[str, bool], version: KubernetesVersion) -> Collection[str]:
    """Return the gates that are on. Raises ValueError for gates that are not implemented in this version."""
    known = switchable_features(version)
    for name in gates:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ValueError(
                f"feature gate {name!r}: must be one of those that can be switched in {version}: {names}"
            )
    return frozenset(name for name, is_on in gates.items() if is_on)
