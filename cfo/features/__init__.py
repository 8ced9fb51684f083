"""The features of the operator. :data:`FEATURES` is the only list of them; everything else iterates over it.

Each optional role is installed only with its feature, so that an operator without AppWrappers cannot create pods, for
example. The configuration, or the platform, enables a feature; if its role is missing, the controllers of the feature
wait for it (:mod:`cfo.features.roles`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cfo.features.appwrapper import AppWrappers, Kueue
from cfo.features.contract import Feature, Kind, OptionalRole
from cfo.features.dashboard import Dashboard
from cfo.features.flux import Flux
from cfo.features.inferencestack import InferenceStacks
from cfo.features.raycluster import (
    Authentication,
    CertificateRequests,
    GatewayAPI,
    NamespaceLabels,
    OpenShift,
    RayClusters,
)

if TYPE_CHECKING:
    from cfo.summaries.kind_view import KindView

FEATURES: Final[tuple[Feature, ...]] = (
    RayClusters(),  # before all kinds that embed RayClusters
    AppWrappers(),
    Kueue(),
    Flux(),
    InferenceStacks(),
    Authentication(),
    OpenShift(),
    GatewayAPI(),
    NamespaceLabels(),
    CertificateRequests(),
    Dashboard(),
)

KINDS: Final = tuple(feature for feature in FEATURES if isinstance(feature, Kind))

OPTIONAL_ROLES: Final = tuple(feature for feature in FEATURES if isinstance(feature, OptionalRole))
"""The features with a role of their own, which are components of the manifests."""


def all_views() -> tuple[KindView, ...]:
    """Return how people see the objects of each kind, in the order in which they are shown."""
    return tuple(view for kind in KINDS for view in kind.views())
