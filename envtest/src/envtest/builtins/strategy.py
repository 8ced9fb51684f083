"""The base strategy of built-in kinds; each kind with its own rules has a subclass.

Objects are kept in kube-apiserver's form throughout (see ``normalization``): they are decoded once, and normalized
again after defaults were set. A subclass overrides :meth:`~BuiltinStrategy.set_defaults`,
:meth:`~BuiltinStrategy.check` and, rarely, ``prepare_create`` and ``prepare_update``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from envtest.apimachinery.errors import StatusError, bad_request
from envtest.apimachinery.field_errors import FieldError, go_quote
from envtest.apimachinery.name_rules import path_segment
from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import Resource, schema_of
from envtest.builtins.normalization import DecodeError, decode, disabled_dropper, encode, zero
from envtest.registry.resource import MetadataChecks, RequestContext, Strategy
from envtest.schema.shaping import copy_json

__all__ = ["BuiltinStrategy", "GenerationStrategy", "PathSegmentNameStrategy"]


_RETURNED = frozenset(
    {
        *(("", f"PersistentVolume{suffix}") for suffix in ("", "Claim")),
        *(
            ("", kind)
            for kind in ("Pod", "PodTemplate", "ResourceQuota", "Service", "ServiceAccount")
        ),
        *(("resource.k8s.io", kind) for kind in ("DeviceClass", "ResourceSlice")),
        *(("resource.k8s.io", kind) for kind in ("ResourceClaim", "ResourceClaimTemplate")),
        *(("storage.k8s.io", kind) for kind in ("CSIDriver", "CSINode", "StorageClass")),
        *(("storage.k8s.io", kind) for kind in ("VolumeAttachment", "VolumeAttributesClass")),
    }
)
"""The kinds whose deletion is answered with the deleted object instead of a Status."""

_ADMISSION = ("AdmissionPolicy", "AdmissionPolicyBinding", "WebhookConfiguration")
_ONLY_CONTENT = MetadataChecks(change=0)
_ONLY_CHANGE = MetadataChecks(content=0)
_METADATA_CHECKS: Final = {
    ("policy", "PodDisruptionBudget"): MetadataChecks(content=0, change=0),
    ("", "PersistentVolume"): MetadataChecks(content=2, change=0),
    **dict.fromkeys(
        (
            ("", "PodTemplate"),
            ("", "ReplicationController"),
            ("", "ResourceQuota"),
            ("", "Service"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            *(("apps", kind) for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")),
            ("autoscaling", "HorizontalPodAutoscaler"),
            ("batch", "CronJob"),
            ("coordination.k8s.io", "Lease"),
            *(("networking.k8s.io", kind) for kind in ("NetworkPolicy", "ServiceCIDR")),
            ("resource.k8s.io", "DeviceClass"),
            ("resource.k8s.io", "ResourceSlice"),
            ("scheduling.k8s.io", "PriorityClass"),
            ("storage.k8s.io", "CSIDriver"),
        ),
        _ONLY_CHANGE,
    ),
    **dict.fromkeys(
        (
            ("", "LimitRange"),
            *(
                ("admissionregistration.k8s.io", f"{verb}{kind}")
                for verb in ("Mutating", "Validating")
                for kind in _ADMISSION
            ),
            ("discovery.k8s.io", "EndpointSlice"),
            *(
                ("flowcontrol.apiserver.k8s.io", kind)
                for kind in ("FlowSchema", "PriorityLevelConfiguration")
            ),
            ("storage.k8s.io", "CSINode"),
            ("storage.k8s.io", "VolumeAttachment"),
        ),
        _ONLY_CONTENT,
    ),
}
"""The kinds whose updates are checked in another way than most."""

_STATUS_METADATA_CHECKS: Final = {
    ("", "Node"): MetadataChecks(),
    ("certificates.k8s.io", "CertificateSigningRequest"): MetadataChecks(),
    ("storage.k8s.io", "VolumeAttachment"): _ONLY_CONTENT,
    **dict.fromkeys(
        (
            ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
            ("batch", "CronJob"),
            ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
            ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
            ("policy", "PodDisruptionBudget"),
        ),
        MetadataChecks(content=0, change=0),
    ),
}
"""The kinds whose updates of the status check more than the change of the metadata, or less."""

_CONDITIONAL = frozenset(
    {
        *(
            ("admissionregistration.k8s.io", f"{verb}{kind}")
            for verb in ("Mutating", "Validating")
            for kind in _ADMISSION
        ),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("coordination.k8s.io", "Lease"),
        ("node.k8s.io", "RuntimeClass"),
        ("policy", "PodDisruptionBudget"),
        *(
            ("storage.k8s.io", kind)
            for kind in ("CSIDriver", "CSINode", "CSIStorageCapacity", "VolumeAttachment")
        ),
    }
)
"""The kinds whose updates must contain a resourceVersion."""


_STATUS_KEEPS: Final = {
    ("apps", "Deployment"): ("labels",),
    ("", "Pod"): ("deletionTimestamp", "ownerReferences"),
    **dict.fromkeys(
        (
            ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
            ("apiregistration.k8s.io", "APIService"),
            ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
            ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
            ("networking.k8s.io", "ServiceCIDR"),
            ("resource.k8s.io", "DeviceTaintRule"),
            ("resource.k8s.io", "ResourceClaim"),
            ("storage.k8s.io", "VolumeAttachment"),
        ),
        ("annotations", "finalizers", "labels", "ownerReferences"),
    ),
}
"""The metadata that an update of the status does not change."""


class BuiltinStrategy(Strategy):
    """See :class:`~envtest.registry.resource.Strategy`. ``resource`` is the entry of the kind in the table."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.returns_deleted_object = (resource.group, resource.kind) in _RETURNED
        self.allow_unconditional_update = (resource.group, resource.kind) not in _CONDITIONAL
        self.metadata_checks = _METADATA_CHECKS.get(
            (resource.group, resource.kind), self.metadata_checks
        )
        self.status_metadata_checks = _STATUS_METADATA_CHECKS.get(
            (resource.group, resource.kind), self.status_metadata_checks
        )
        self.has_status = any(each.name == "status" for each in resource.subresources)
        status = schema_of(resource.type).properties.get("status")
        self._status_zero = None
        if status is not None and status.raw.get("x-envtest-wire") == "always":
            self._status_zero = zero(status.ref)

    def empty(self) -> Object:
        """See :meth:`Strategy.empty`."""
        empty: Object = copy_json(zero(self.resource.type))
        return empty

    def decode(self, obj: Object, ctx: RequestContext) -> list[str]:
        """See :meth:`Strategy.decode`."""
        try:
            decoded, unknown = decode(self.resource.type, obj)
        except DecodeError as error:
            raise self.undecodable(error) from error
        ctx.sent = dict(obj)
        obj.clear()
        obj.update(decoded)
        return [f"unknown field {go_quote(path)}" for path in unknown]

    def undecodable(self, error: DecodeError) -> StatusError:
        """Return a 400 about a body that cannot be decoded, to raise from ``error``."""
        kind = self.resource.kind
        version = self.resource.version
        return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error}')

    def default(self, obj: Object) -> None:
        """See :meth:`Strategy.default`."""
        if "spec" not in obj or "metadata" not in obj:
            self._normalize(obj)
        self.set_defaults(obj)
        self._normalize(obj)

    def _normalize(self, obj: Object) -> None:
        normalized = encode(self.resource.type, obj)
        for name in obj.keys() - normalized.keys():
            del obj[name]
        for name, value in normalized.items():
            if name == "metadata" and isinstance(obj.get(name), dict):
                metadata = obj[name]  # the request pipeline keeps a reference to this dict
                metadata.clear()
                metadata.update(value)
            else:
                obj[name] = value

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the kind, in place."""

    def drop_disabled(self, obj: Object) -> None:
        """See :meth:`Strategy.drop_disabled`."""
        drop = disabled_dropper(self.resource.type)
        if drop is not None:
            drop(obj)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_create`: clients cannot set the status."""
        if self.has_status:
            self._reset_status(obj)

    def _reset_status(self, obj: Object) -> None:
        if self._status_zero is None:
            obj.pop("status", None)
        else:
            obj["status"] = copy_json(self._status_zero)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: an update keeps the status, and a status update keeps the rest."""
        if not self.has_status:
            return
        if ctx.subresource == "status":
            if "spec" in old:
                new["spec"] = copy_json(old["spec"])
            kept = _STATUS_KEEPS.get((self.resource.group, self.resource.kind), ())
            for name in kept:
                if name in old["metadata"]:
                    new["metadata"][name] = copy_json(old["metadata"][name])
                else:
                    new["metadata"].pop(name, None)
        elif not ctx.subresource:
            if "status" in old:
                new["status"] = copy_json(old["status"])
            else:
                new.pop("status", None)

    def validate(
        self,
        obj: Object,
        old: Object | None,
        ctx: RequestContext,
        metadata_errors: Sequence[FieldError] = (),
    ) -> Sequence[FieldError]:
        """See :meth:`Strategy.validate`."""
        return list(self.check(obj, old, ctx))

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterable[FieldError]:
        """Yield the errors of the kind; ``old`` is ``None`` on creation."""
        return ()


class PathSegmentNameStrategy(BuiltinStrategy):
    """Strategy of kinds whose names must only be valid as a URL path segment."""

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str] | None:
        """See :meth:`Strategy.validate_name`."""
        return [
            each for each in path_segment(name) if not (prefix and each.startswith("may not be"))
        ]


class GenerationStrategy(BuiltinStrategy):
    """Strategy of kinds that count generations and have no other rules."""

    has_spec_generation = True
