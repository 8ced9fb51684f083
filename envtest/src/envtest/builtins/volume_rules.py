"""Validation of the volumes of a pod."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    not_supported_string,
    required,
)
from envtest.apimachinery.name_rules import (
    annotation_errors,
    dns_label,
    dns_subdomain,
    label_errors,
)
from envtest.builtins.claims import claim_errors
from envtest.builtins.environment_rules import (
    VOLUME_FIELD_PATHS,
    field_ref_errors,
    resource_ref_errors,
)
from envtest.builtins.go_rendering import TRUST_BUNDLE, internal_fields, internal_selector
from envtest.builtins.path_rules import relative_path_errors, unreserved_path_errors
from envtest.builtins.signer_rules import (
    is_kubernetes_signer,
    signer_errors,
    trust_bundle_name_problems,
)
from envtest.builtins.string_validation import label_selector_errors
from envtest.builtins.volume_sources import (
    csi_driver_name_errors,
    is_portal_too_long,
    source_errors,
)
from envtest.schema.quantity import parse_quantity

__all__ = ["check_volumes"]

_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
_REQUIRED_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "configMap": ("name",),
    "gitRepo": ("repository",),
    "image": ("reference",),
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
}
_ORDER: Final = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)
"""The sources in the order in which kube-apiserver validates them."""
_FIELD_NAMES: Final = {"gcePersistentDisk": "persistentDisk"}
"""The names of sources in error paths, where they differ from the fields."""
_EXTRA_NAMES: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""The names of sources in errors about volumes that have several."""

_CERTIFICATE_PATHS: Final = ("credentialBundlePath", "keyPath", "certificateChainPath")
_KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_MIN_LIFETIME: Final = 3600
_DAY: Final = 24 * 3600
_MAX_LIFETIME: Final = 91 * _DAY
"""Minimum and maximum seconds that a pod can request for the lifetime of its certificate."""
_CLAIM_METADATA: Final = frozenset({"annotations", "creationTimestamp", "labels"})
"""The metadata that the template of an ephemeral volume's claim can have."""


def check_volumes(
    volumes: Sequence[Mapping[str, Any]], path: str, pod_name: str = ""
) -> tuple[list[FieldError], dict[str, Mapping[str, Any]]]:
    """Return the errors of all volumes, and the volumes without errors by name: containers can mount only these.

    ``pod_name`` is the pod's name, which with the volume's name is the name of an ephemeral volume's claim;
    it is empty for templates.
    """
    errors: list[FieldError] = []
    valid: dict[str, Mapping[str, Any]] = {}
    created = (
        {f"{pod_name}-{each.get('name') or ''}" for each in volumes if "ephemeral" in each}
        if pod_name
        else ()
    )
    for position, volume in enumerate(volumes):
        field_path = f"{path}[{position}]"
        found = list(_volume_errors(volume, field_path, pod_name))
        name = volume.get("name") or ""
        if name in valid:
            found.append(duplicate(f"{field_path}.name", name))
        if not found:
            valid[name] = volume
        errors += found
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") if created else None
        if claim is not None and claim in created:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(f"{field_path}.persistentVolumeClaim.claimName", claim, text))
    return errors, valid


def _volume_errors(volume: Mapping[str, Any], path: str, pod_name: str) -> Iterator[FieldError]:
    name = volume.get("name") or ""
    sources = [each for each in volume if each != "name"]
    if len(sources) > 1:
        sources.sort(key=_ORDER.index)
    if not sources:
        yield required(path, "must specify a volume type")
    else:
        source = sources[0]
        yield from _source_errors(
            source, volume[source] or {}, f"{path}.{_FIELD_NAMES.get(source, source)}"
        )
    if len(sources) > 1:
        for extra in sources[1:]:
            yield forbidden(
                f"{path}.{_EXTRA_NAMES.get(extra, extra)}",
                "may not specify more than 1 volume type",
            )
    if "iscsi" in volume and is_portal_too_long(name, volume["iscsi"] or {}):
        text = "must be under 64 characters if iscsi.initiatorName is specified."
        yield invalid(
            f"{path}.name", name, f"Total length of <volume name>:<iscsi.targetPortal> {text}"
        )
    if "ephemeral" in volume and sources[0] == "ephemeral" and pod_name and name:
        for problem in dns_subdomain(f"{pod_name}-{name}"):
            yield invalid(f"{path}.name", name, f'PVC name "{pod_name}-{name}": {problem}')
    if not name:
        yield required(f"{path}.name")
    else:
        for problem in dns_label(name):
            yield invalid(f"{path}.name", name, problem)


def _source_errors(kind: str, source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in _REQUIRED_FIELDS.get(kind, ()):
        if not source.get(name):
            yield required(f"{path}.{name}")
    rule = _RULES.get(kind)
    if rule is not None:
        yield from rule(source, path)
    else:
        yield from source_errors(kind, source, path, persistent=False)


def _empty_dir_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    limit = source.get("sizeLimit")
    if limit is not None and parse_quantity(limit).value < 0:
        yield forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _file_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
    yield from _item_errors(source.get("items") or (), f"{path}.items")


def _git_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from relative_path_errors(source.get("directory") or "", f"{path}.directory")


def _image_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    policy = source.get("pullPolicy") or ""
    if policy not in _PULL_POLICIES:
        yield not_supported(f"{path}.pullPolicy", policy, _PULL_POLICIES)


def _csi_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from csi_driver_name_errors(source.get("driver") or "", f"{path}.driver")
    reference = source.get("nodePublishSecretRef")
    if reference is None:
        return
    if not reference.get("name"):
        yield required(f"{path}.nodePublishSecretRef.name")
    if reference.get("name"):
        for problem in dns_subdomain(reference["name"]):
            yield invalid(f"{path}.name", reference["name"], problem)


def _ephemeral_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield required(f"{path}.volumeClaimTemplate")
        return
    path = f"{path}.volumeClaimTemplate"
    metadata = template.get("metadata") or {}
    yield from annotation_errors(metadata.get("annotations") or {}, f"{path}.metadata.annotations")
    yield from label_errors(metadata.get("labels") or {}, f"{path}.metadata.labels")
    for name in sorted(metadata.keys() - _CLAIM_METADATA):
        if metadata[name]:
            yield forbidden(f"{path}.metadata.{name}", "cannot be set for an ephemeral volume")
    yield from claim_errors(template.get("spec") or {}, f"{path}.spec")


def _downward_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
    for item in source.get("items") or ():
        yield from _downward_item_errors(item, path)


def _downward_item_errors(item: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a file of a downward API volume, which kube-apiserver reports without its position."""
    target = item.get("path") or ""
    if not target:
        yield required(f"{path}.path")
    yield from unreserved_path_errors(target, f"{path}.path")
    field = item.get("fieldRef")
    resource = item.get("resourceFieldRef")
    if field is not None:
        yield from field_ref_errors(field, f"{path}.fieldRef", VOLUME_FIELD_PATHS)
        if resource is not None:
            yield invalid(
                path,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            )
    elif resource is not None:
        yield from resource_ref_errors(resource, f"{path}.resourceFieldRef", needs_container=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from _mode_errors(item.get("mode"), f"{path}.mode")


def _projected_errors(volume: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _mode_errors(volume.get("defaultMode"), f"{path}.defaultMode")
    targets: set[str] = set()
    for position, source in enumerate(volume.get("sources") or ()):
        field_path = f"{path}.sources[{position}]"
        for kind in ("secret", "configMap"):
            if kind in source:
                if not source[kind].get("name"):
                    yield required(f"{field_path}.{kind}.name")
                yield from _item_errors(
                    source[kind].get("items") or (), f"{field_path}.{kind}.items"
                )
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            yield from _downward_item_errors(item, f"{field_path}.downwardAPI")
        if "serviceAccountToken" in source:
            yield from _token_errors(
                source["serviceAccountToken"], f"{field_path}.serviceAccountToken", path
            )
        if "clusterTrustBundle" in source:
            yield from _bundle_errors(
                source["clusterTrustBundle"], f"{field_path}.clusterTrustBundle"
            )
        if "podCertificate" in source:
            yield from _certificate_errors(source["podCertificate"], f"{field_path}.podCertificate")
        for shown, target in _targets(source):
            if target in targets:
                yield invalid(path, shown, "conflicting duplicate paths")
            targets.add(target)
        if len(source) > 1:
            yield forbidden(field_path, "may not specify more than 1 volume type per source")


def _targets(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path of each file of a projection, after the value that a conflict shows."""
    for kind in ("secret", "configMap"):
        for item in (source.get(kind) or {}).get("items") or ():
            if item.get("path"):
                yield source[kind].get("name") or "", item["path"]
    for item in (source.get("downwardAPI") or {}).get("items") or ():
        if item.get("path"):
            yield item["path"], item["path"]
    target = (source.get("clusterTrustBundle") or {}).get("path")
    if target:
        yield target, target
    for name in _CERTIFICATE_PATHS:
        target = (source.get("podCertificate") or {}).get(name)
        if target:
            yield target, target


def _token_errors(token: Mapping[str, Any], path: str, volume_path: str) -> Iterator[FieldError]:
    seconds = token.get("expirationSeconds") or 0
    target = token.get("path") or ""
    if seconds < 600:
        yield invalid(
            f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"
        )
    elif seconds > 2**32:
        yield invalid(
            f"{path}.expirationSeconds",
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        )
    if not target:
        yield required(f"{volume_path}.path")
    else:
        yield from unreserved_path_errors(target, f"{volume_path}.path")


def _bundle_errors(bundle: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = bundle.get("name")
    signer = bundle.get("signerName")
    target = bundle.get("path") or ""
    if name is not None and signer is not None:
        yield invalid(
            path,
            internal_fields(TRUST_BUNDLE, bundle),
            "only one of name and signerName may be used",
        )
    elif name is not None:
        if not name:
            yield required(f"{path}.name", "must be a valid object name")
        for problem in trust_bundle_name_problems(name):
            yield invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {problem}")
        if bundle.get("labelSelector") is not None:
            text = "labelSelector must be unset if name is specified"
            yield invalid(f"{path}.labelSelector", internal_selector(bundle["labelSelector"]), text)
    elif signer is not None:
        if not signer:
            yield required(f"{path}.signerName", "must be a valid signer name")
        yield from signer_errors(signer, f"{path}.signerName")
        yield from label_selector_errors(bundle.get("labelSelector"), f"{path}.labelSelector")
    else:
        yield required(path, "either name or signerName must be specified")
    if not target:
        yield required(f"{path}.path")
    yield from unreserved_path_errors(target, f"{path}.path")


def _certificate_errors(certificate: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a certificate that a signer issues for the pod."""
    signer = certificate.get("signerName") or ""
    kind = certificate.get("keyType") or ""
    yield from signer_errors(signer, f"{path}.signerName")
    if kind not in _KEY_TYPES:
        yield not_supported_string(f"{path}.keyType", kind, _KEY_TYPES)
    seconds = certificate.get("maxExpirationSeconds")
    limit = _DAY if is_kubernetes_signer(signer) else _MAX_LIFETIME
    if seconds is not None and seconds < _MIN_LIFETIME:
        text = f"if provided, maxExpirationSeconds must be >= {_MIN_LIFETIME}"
        yield invalid(f"{path}.maxExpirationSeconds", seconds, text)
    elif seconds is not None and seconds > limit:
        text = f"if provided, maxExpirationSeconds must be <= {limit}"
        yield invalid(f"{path}.maxExpirationSeconds", seconds, text)
    for name in _CERTIFICATE_PATHS:
        yield from unreserved_path_errors(certificate.get(name) or "", f"{path}.{name}")
    if not any(map(certificate.get, _CERTIFICATE_PATHS)):
        text = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        yield required(path, text)


def _item_errors(items: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for position, item in enumerate(items):
        field_path = f"{path}[{position}]"
        for name in ("key", "path"):
            if not item.get(name):
                yield required(f"{field_path}.{name}")
        yield from unreserved_path_errors(item.get("path") or "", f"{field_path}.path")
        yield from _mode_errors(item.get("mode"), f"{field_path}.mode")


def _mode_errors(mode: int | None, path: str) -> Iterator[FieldError]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, _MODE)


_RULES: Final[Mapping[str, Callable[[Mapping[str, Any], str], Iterator[FieldError]]]] = {
    "configMap": _file_errors,
    "csi": _csi_errors,
    "downwardAPI": _downward_errors,
    "emptyDir": _empty_dir_errors,
    "ephemeral": _ephemeral_errors,
    "gitRepo": _git_errors,
    "image": _image_errors,
    "projected": _projected_errors,
    "secret": _file_errors,
}
"""The rules of sources that persistent volumes do not have, or have with other rules."""
