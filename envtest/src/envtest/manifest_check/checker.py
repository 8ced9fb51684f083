"""Creates objects in an API server without HTTP, and collects what it answers.

Everything that an object needs is assumed to exist: namespaces are created, and the admission plugins are off that read
other objects of the cluster (service accounts, priority classes, runtime classes, quotas) or call webhooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from envtest.admission.plugin_names import enabled_plugins
from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.field_errors import invalid
from envtest.apimachinery.name_rules import dns_label
from envtest.apimachinery.objects import Object
from envtest.builtins.normalization import DecodeError
from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion
from envtest.manifest_check.documents import Manifest
from envtest.manifest_check.removed_versions import is_builtin_group, not_served
from envtest.manifest_check.repair import is_related, remove_value
from envtest.registry.registry import hint_about
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.server.assembly import SYSTEM, APIServer, Cluster, assemble
from envtest.writes.create_update import copy_object, create_object

__all__ = ["Finding", "Level", "check_manifests"]

Level = Literal["error", "warning"]

_DISABLED: Final = (
    "MutatingAdmissionWebhook",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "ValidatingAdmissionWebhook",
)
_ADMISSION: Final = "admissionregistration.k8s.io"
_POLICY: Final = re.compile(r"(Validating|Mutating)AdmissionPolicy(Binding)?")
_CANNOT_BE_HANDLED: Final = re.compile(
    r"(?<!\S)\S++ in version \S++ cannot be handled as an? \S+: "
)
_UNKNOWN: Final = re.compile(r'unknown field "(.*)"', re.DOTALL)
_MAX_WRONG_TYPES: Final = 50
"""How many values of a wrong type are reported for an object at most."""

_DEFAULT: Final = "default"
_NAMESPACE: Final = "metadata.namespace"

_INTERNAL_PATHS: Final = {
    "spec.version": "spec.versions[0].name",
    "spec.validation": "spec.versions[0].schema",
    "spec.subresources": "spec.versions[0].subresources",
    "spec.additionalPrinterColumns": "spec.versions[0].additionalPrinterColumns",
    "spec.selectableFields": "spec.versions[0].selectableFields",
}
"""The paths in kube-apiserver's errors about what all versions of a CRD share, and those of the manifest."""

_FIELDS_OF_BETA: Final = {
    "spec.version": "spec.versions[].name",
    "spec.validation": "spec.versions[].schema",
    "spec.subresources": "spec.versions[].subresources",
    "spec.additionalPrinterColumns": "spec.versions[].additionalPrinterColumns",
}
"""The fields of CRDs in ``v1beta1`` for all versions, and where ``v1`` has them."""

_CLAIM_STORAGE: Final = "spec.resources[storage]"
"""The path in kube-apiserver's errors about the storage that a claim requests."""

_RULES_UNCHECKED: Final = "some validation rules were not checked because the object was invalid"
"""A note that follows other errors of a custom resource, about no field."""

_ALLOCATED: Final = "failed to allocate IP "
"""The service network of the cluster is unknown."""


class Finding(NamedTuple):
    """A problem of an object: its place, the path of the field (may be empty), and a message."""

    file: str
    line: int
    level: Level
    path: str
    message: str
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""


async def check_manifests(
    manifests: Sequence[Manifest],
    crds: Iterable[Object] = (),
    *,
    version: KubernetesVersion = LATEST,
    strict: bool = False,
) -> list[Finding]:
    """Return the problems of ``manifests``, in their order.

    ``crds`` are installed first, then the CRDs and namespaces among the manifests. A custom resource without a CRD is a
    warning, or an error if ``strict``. Raises StatusError if one of ``crds`` is invalid.
    """
    checker = _Checker(version, strict)
    for crd in crds:
        await checker.install(crd)
    order = sorted(range(len(manifests)), key=lambda position: _phase(manifests[position].obj))
    if any(_phase(each.obj) == _POLICIES for each in manifests):
        await checker.store_parameters(manifests)
    found = {position: await checker.check(manifests[position]) for position in order}
    return [finding for position in range(len(manifests)) for finding in found[position]]


_CRDS, _NAMESPACES, _LIMITS, _POLICIES, _OTHERS = range(5)


def _is_crd(obj: Object) -> bool:
    group = str(obj["apiVersion"]).rpartition("/")[0]
    return (group, str(obj["kind"])) == ("apiextensions.k8s.io", "CustomResourceDefinition")


def _phase(obj: Object) -> int:
    """Return when an object is created: what the checks of other objects read comes first."""
    group = str(obj["apiVersion"]).rpartition("/")[0]
    kind = str(obj["kind"])
    if _is_crd(obj):
        return _CRDS
    if not group and kind in ("Namespace", "LimitRange"):
        return _NAMESPACES if kind == "Namespace" else _LIMITS
    return _POLICIES if group == _ADMISSION and _POLICY.fullmatch(kind) else _OTHERS


class _Answer(NamedTuple):
    """What the API server reports about an object besides an error."""

    unknown_fields: list[str]
    warnings: list[str]


class _Checker:
    """An API server, and the namespaces that exist in it."""

    def __init__(self, version: KubernetesVersion, strict: bool) -> None:
        self._api_server: APIServer = assemble(
            admin_token="",
            users={},
            audit_log=None,
            plugins=enabled_plugins(disable=_DISABLED),
            anonymous=False,
            cluster=Cluster(version=version),
        )
        self._version = version
        self._strict = strict
        self._namespaces: set[str] = set()
        self._lines: dict[tuple[str, ...], int] = {}
        """The line of each object, by its file, group, kind, namespace and name."""

    def _info(self, obj: Object) -> ResourceInfo | None:
        group, _, version = str(obj["apiVersion"]).rpartition("/")
        return self._api_server.core.registry.by_kind(group, version, str(obj["kind"]))

    async def install(self, crd: Object) -> None:
        """Create a CRD unless it exists. Raises StatusError if it is invalid."""
        info = self._info(crd)
        if info is None:
            return
        answer = _Answer([], [])
        try:
            await self._create(info, copy_object(crd), answer)
        except StatusError as error:
            unknown = [": ".join(_unknown_field(text, crd)) for text in answer.unknown_fields]
            error.message = "; ".join([error.message, *unknown])
            raise

    async def store_parameters(self, manifests: Iterable[Manifest]) -> None:
        """Create what admission policies can have as parameters; problems are found later."""
        for manifest in manifests:
            info = self._info(manifest.obj)
            if info is not None and (info.is_crd or (info.group, info.kind) == ("", "ConfigMap")):
                try:
                    await self._create(info, copy_object(manifest.obj))
                except StatusError:
                    continue

    async def check(self, manifest: Manifest) -> list[Finding]:
        """Return the problems of an object."""
        problems = [*await self._problems(manifest), *self._repetition(manifest)]
        return [self._finding(manifest, *each) for each in problems]

    def _repetition(self, manifest: Manifest) -> Iterator[tuple[Level, str, str]]:
        """Yield a warning if the file contains the object already: only the last one takes effect."""
        metadata = manifest.obj.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            return
        group = str(manifest.obj["apiVersion"]).rpartition("/")[0]
        kind = str(manifest.obj["kind"])
        name = str(metadata["name"])
        namespace = str(metadata.get("namespace") or "")
        identity = (manifest.document.file, group, kind, namespace, name)
        line = manifest.locate("metadata.name")
        first = self._lines.setdefault(identity, line)
        if first != line:
            message = f"{kind} {name} is also on line {first}; the last one replaces the others"
            yield "warning", "metadata.name", message

    async def _problems(self, manifest: Manifest) -> list[tuple[Level, str, str]]:
        obj = copy_object(manifest.obj)
        info = self._info(obj)
        if info is None:
            return [self._unserved(obj)]
        namespace = _namespace_problems(obj) if info.namespaced else []
        if namespace:
            obj["metadata"]["namespace"] = _DEFAULT  # an API server would report nothing else
        undecodable: dict[str, str] = {}
        while True:
            answer = _Answer([], [])
            causes: list[tuple[str, str]] = []
            wrong = ""
            try:
                await self._create(info, copy_object(obj), answer)
            except StatusError as error:
                causes = list(_causes(error))
                wrong = _wrong_type(error)
            # An API server reports only the first value of a wrong type, and then nothing else.
            if not wrong or len(undecodable) >= _MAX_WRONG_TYPES or not remove_value(obj, wrong):
                break
            undecodable[wrong] = causes[0][1]
        if _is_crd(obj):
            causes = _with_paths_of_file(causes)
        rejected = [*undecodable.items(), *_not_caused_by(causes, undecodable)]
        return [
            *(("error", _NAMESPACE, message) for message in namespace),
            *(("error", *_unknown_field(text, obj)) for text in answer.unknown_fields),
            *(("error", path, message) for path, message in rejected),
            *(("warning", *_split_warning(text)) for text in answer.warnings),
        ]

    def _unserved(self, obj: Object) -> tuple[Level, str, str]:
        api_version = str(obj["apiVersion"])
        kind = str(obj["kind"])
        reason = not_served(api_version, kind, self._version)
        if reason:
            return "error", "apiVersion", f"{api_version} {kind} {reason}"
        group = api_version.rpartition("/")[0]
        similar = self._api_server.core.registry.similar_kinds(kind)
        if is_builtin_group(group):
            return "error", "kind", f"{api_version} has no kind {kind}{hint_about(similar)}"
        in_group = [each for each in similar if each.startswith(f"{group}/")]
        if in_group:
            # Another version, or the kind in another case.
            return "error", "kind", f"no CRD serves {api_version} {kind}{hint_about(in_group)}"
        return (
            "error" if self._strict else "warning",
            "",
            f"no CRD for {api_version} {kind}: not checked",
        )

    async def _create(self, info: ResourceInfo, obj: Object, answer: _Answer | None = None) -> None:
        """Create an object unless it exists; add to ``answer``. Raises StatusError if it is rejected."""
        answer = answer or _Answer([], [])
        metadata = obj.get("metadata")
        namespace = ""
        if info.namespaced:
            namespace = (
                str(metadata.get("namespace") or _DEFAULT)
                if isinstance(metadata, dict)
                else _DEFAULT
            )
            await self._ensure_namespace(namespace)
        ctx = RequestContext(
            SYSTEM,
            "create",
            info,
            namespace,
            "",
            operation="CREATE",
            # Allocated values and conversions of other objects are unknown.
            dry_run=info.allocates or (info.is_crd and info.api_version != info.storage_version),
            field_manager="envtest",
            field_validation="Strict",
            warnings=answer.warnings,
            moment=self._api_server.core.clock.now(),
        )
        ctx.warn(info.deprecation)
        answer.unknown_fields.extend(info.strategy.decode(obj, ctx))
        metadata = obj.setdefault("metadata", {})
        if info.namespaced:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        if "get" in info.verbs:  # not the body of a review
            try:
                await create_object(self._api_server.core, ctx, obj)
            except StatusError as error:
                # an object of this name is in another file; both are valid
                if error.reason != "AlreadyExists":
                    raise

    async def _ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it exists; an invalid name is reported by :meth:`_problems`."""
        if name in self._namespaces:
            return
        self._namespaces.add(name)
        info = self._api_server.core.registry.lookup("", "v1", "namespaces")
        assert info is not None
        try:
            await self._create(
                info, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        except StatusError:
            return

    def _finding(self, manifest: Manifest, level: Level, path: str, message: str) -> Finding:
        obj = manifest.obj
        shown = f"{manifest.prefix}.{path}" if manifest.prefix and path else manifest.prefix or path
        metadata = obj.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        return Finding(
            manifest.document.file,
            manifest.locate(path),
            level,
            shown,
            message,
            str(obj["apiVersion"]),
            str(obj["kind"]),
            str(metadata.get("namespace") or ""),
            str(metadata.get("name") or metadata.get("generateName") or ""),
        )


def _namespace_problems(obj: Object) -> list[str]:
    """Return why no namespace can have the name of the object's namespace."""
    metadata = obj.get("metadata")
    name = metadata.get("namespace") if isinstance(metadata, dict) else None
    if not name or not isinstance(name, str):
        return []
    return [invalid(_NAMESPACE, name, problem).body for problem in dns_label(name)]


def _with_paths_of_file(causes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the causes of an error about a CRD with the paths of its manifest, without those that are then equal."""
    return list(dict.fromkeys((_path_of_file(path), message) for path, message in causes))


def _path_of_file(path: str) -> str:
    for internal, external in _INTERNAL_PATHS.items():
        rest = path.removeprefix(internal)
        if path.startswith(internal) and (not rest or rest[0] in ".["):
            return external + rest
    return path


def _wrong_type(error: StatusError) -> str:
    """Return the path to the value whose wrong type prevents that an object is decoded; empty if there is none."""
    return error.__cause__.path if isinstance(error.__cause__, DecodeError) else ""


def _not_caused_by(
    causes: Iterable[tuple[str, str]], removed: Iterable[str]
) -> list[tuple[str, str]]:
    """Return the ``causes`` of an error that are not about values that were ``removed``."""
    return [
        (path, message)
        for path, message in causes
        if not any(is_related(path, each) for each in removed)
    ]


def _causes(error: StatusError) -> Iterator[tuple[str, str]]:
    """Yield the path and the message of each cause of an error."""
    causes: Sequence[dict[str, Any]] = (error.details or {}).get("causes") or ()
    found = [(str(cause.get("field") or ""), str(cause.get("message") or "")) for cause in causes]
    if not found:
        path = error.__cause__.path if isinstance(error.__cause__, DecodeError) else ""
        message = _CANNOT_BE_HANDLED.sub("", error.message)
        found = [(path, message.removeprefix(f"{path}: "))]
    for path, text in found:
        if path.endswith(_CLAIM_STORAGE):
            path = path.removesuffix("[storage]") + ".requests.storage"
        if _ALLOCATED not in text and _RULES_UNCHECKED not in text:
            yield path.strip("<>"), text


def _unknown_field(text: str, obj: Object) -> tuple[str, str]:
    """Return the path of an unknown field of ``obj``, and a message; for one of an older version, where it is now."""
    match = _UNKNOWN.fullmatch(text)
    if match is None:
        return "", text
    path = match[1]
    if _is_crd(obj) and path in _FIELDS_OF_BETA:
        return path, f"unknown field: moved to {_FIELDS_OF_BETA[path]} in v1"
    return path, "unknown field"


_WARNING_PATH: Final = re.compile(
    r"((?:spec|metadata|data|template|webhooks)[\w.\[\]-]*): (.+)", re.DOTALL
)


def _split_warning(text: str) -> tuple[str, str]:
    """Return the path with which many warnings start, and the rest."""
    match = _WARNING_PATH.fullmatch(text)
    return (match[1], match[2]) if match else ("", text)
