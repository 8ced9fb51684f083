"""Stand-ins for the built-in kinds and CRDs until their own modules are here."""

from __future__ import annotations

from cfo.envtest.builtins.catalog import all_resources, schema_of, storage_hash
from cfo.envtest.context import RequestContext
from cfo.envtest.core import Core
from cfo.envtest.errors import GroupResource
from cfo.envtest.registry import ResourceInfo, Subresource
from cfo.envtest.storage import Change
from cfo.envtest.strategy import Strategy
from cfo.runtime.objects import Object

CRDS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


class Builtin(Strategy):
    allow_create_on_update = False

    def __init__(self, kind: str, *, generation: bool) -> None:
        self.kind = kind
        self.has_spec_generation = generation

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        if self.kind == "CustomResourceDefinition":
            names = obj["spec"]["names"]
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", names["kind"] + "List")
            obj["status"] = {
                "acceptedNames": names,
                "storedVersions": [each["name"] for each in obj["spec"]["versions"] if each["storage"]],
                "conditions": [
                    {
                        "type": kind,
                        "status": "True",
                        "reason": reason,
                        "message": message,
                        "lastTransitionTime": ctx.now,
                    }
                    for kind, reason, message in (
                        ("NamesAccepted", "NoConflicts", "no conflicts found"),
                        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
                    )
                ],
            }
        if self.kind == "Namespace":
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
            obj["status"] = {"phase": "Active"}
            obj["spec"] = {"finalizers": ["kubernetes"]}
        if self.kind == "Secret":
            obj.setdefault("type", "Opaque")

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        _keep(new, old, ctx)

    def begin_deletion(self, obj: Object, ctx: RequestContext) -> bool:
        if self.kind != "Namespace":
            return False
        if obj["metadata"].get("deletionTimestamp") and not obj["spec"].get("finalizers"):
            return False
        obj["metadata"].setdefault("deletionTimestamp", ctx.now)
        obj.setdefault("status", {})["phase"] = "Terminating"
        return True


class Custom(Strategy):
    allow_unconditional_update = False
    has_spec_generation = True

    def __init__(self, *, status: bool) -> None:
        self.status = status

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        if self.status:
            obj.pop("status", None)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        if self.status:
            _keep(new, old, ctx)


def _keep(new: Object, old: Object, ctx: RequestContext) -> None:
    if ctx.subresource == "status":
        for name in set(new) | set(old):
            if name in {"status", "metadata"}:
                continue
            if name in old:
                new[name] = old[name]
            else:
                new.pop(name, None)
    elif "status" in ctx.info.subresources:
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)


def register(core: Core) -> None:
    for each in all_resources():
        core.registry.register(
            ResourceInfo(
                each.group,
                each.version,
                each.plural,
                each.singular,
                each.kind,
                each.namespaced,
                Builtin(each.kind, generation=each.group in {"apps", "batch", "networking.k8s.io"}),
                verbs=each.verbs,
                short_names=each.short_names,
                categories=each.categories,
                subresources={
                    sub.name: Subresource(sub.name, sub.kind, sub.group, sub.version, sub.verbs)
                    for sub in each.subresources
                },
                schema=schema_of(each.type),
                storage_version_hash=storage_hash(each.group, each.version, each.kind),
            )
        )

    def follow(resource: GroupResource, change: Change) -> None:
        if resource != CRDS:
            return
        crd = change.record.obj()
        spec = crd["spec"]
        names = spec["names"]
        core.registry.unregister(spec["group"], names["plural"])
        if change.type == "DELETED":
            return
        stored = next(each["name"] for each in spec["versions"] if each["storage"])
        for version in spec["versions"]:
            if not version["served"]:
                continue
            subresources = {name: Subresource(name) for name in version.get("subresources") or {}}
            core.registry.register(
                ResourceInfo(
                    spec["group"],
                    version["name"],
                    names["plural"],
                    names.get("singular") or names["kind"].lower(),
                    names["kind"],
                    spec["scope"] == "Namespaced",
                    Custom(status="status" in subresources),
                    list_kind=names.get("listKind") or "",
                    short_names=tuple(names.get("shortNames") or ()),
                    categories=tuple(names.get("categories") or ()),
                    subresources=subresources,
                    is_crd=True,
                    columns=version.get("additionalPrinterColumns") or (),
                    storage_version=f"{spec['group']}/{stored}",
                )
            )

    core.store.journal.append(follow)
