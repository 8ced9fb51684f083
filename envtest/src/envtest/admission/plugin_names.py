"""The names of kube-apiserver's admission plugins, and which of them are enabled.

The names and defaults are those of ``pkg/kubeapiserver/options/plugins.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

__all__ = ["DEFAULT_PLUGINS", "enabled_plugins"]

DEFAULT_PLUGINS: Final = frozenset(
    {
        "CertificateApproval",
        "CertificateSigning",
        "CertificateSubjectRestriction",
        "ClusterTrustBundleAttest",
        "DefaultIngressClass",
        "DefaultStorageClass",
        "DefaultTolerationSeconds",
        "JobValidation",
        "LimitRanger",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionWebhook",
        "NamespaceLifecycle",
        "NodeDeclaredFeatureValidator",
        "PersistentVolumeClaimResize",
        "PodGroupProtection",
        "PodGroupWorkloadExists",
        "PodResizeValidator",
        "PodSecurity",
        "PodTopologyLabels",
        "Priority",
        "ResourceQuota",
        "RuntimeClass",
        "ServiceAccount",
        "StorageObjectInUseProtection",
        "TaintNodesByCondition",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
    }
)
"""The plugins that are enabled by default; :mod:`envtest.admission.standard` has those that are implemented."""

_WITHOUT_EFFECT: Final = frozenset({"AlwaysAdmit", "NodeRestriction"})
"""Plugins that are disabled by default, and do nothing or only concern kubelets."""

_NOT_IMPLEMENTED: Final = frozenset(
    {
        "AlwaysDeny",
        "AlwaysPullImages",
        "DenyServiceExternalIPs",
        "EventRateLimit",
        "ExtendedResourceToleration",
        "ImagePolicyWebhook",
        "LimitPodHardAntiAffinityTopology",
        "NamespaceAutoProvision",
        "NamespaceExists",
        "OwnerReferencesPermissionEnforcement",
        "PodNodeSelector",
        "PodTolerationRestriction",
    }
)
"""Plugins that are disabled by default, and would change responses if they were enabled."""

_KNOWN: Final = DEFAULT_PLUGINS | _WITHOUT_EFFECT | _NOT_IMPLEMENTED


def enabled_plugins(enable: Iterable[str] = (), disable: Iterable[str] = ()) -> Collection[str]:
    """Return which of the default plugins run if kube-apiserver's flags enable and disable these plugins.

    Raises ValueError for a name that kube-apiserver does not have or that is in both flags, and for an enabled plugin
    that would change responses but is not implemented.
    """
    enabled = list(enable)
    disabled = list(disable)
    for flag, names in (
        ("enable-admission-plugins", enabled),
        ("disable-admission-plugins", disabled),
    ):
        for name in names:
            if name not in _KNOWN:
                raise ValueError(f'{flag} plugin "{name}" is unknown')
    both = sorted({*enabled} & {*disabled})
    if both:
        raise ValueError(
            f"{both} in enable-admission-plugins and disable-admission-plugins overlapped"
        )
    for name in enabled:
        if name in _NOT_IMPLEMENTED:
            raise ValueError(
                f'enable-admission-plugins: envtest does not implement the plugin "{name}"'
            )
    return DEFAULT_PLUGINS.difference(disabled)
