"""The strategy of certificates.k8s.io CertificateSigningRequest."""

from __future__ import annotations

from collections.abc import Iterator

from envtest.builtins.strategy import PathSegmentNameStrategy
from envtest.context import RequestContext
from envtest.field_errors import FieldError, invalid, required
from envtest.objects import Object
from envtest.schema.shaping import copy_json

__all__ = ["CertificateRequestStrategy"]


class CertificateRequestStrategy(PathSegmentNameStrategy):
    """Strategy of certificates.k8s.io/v1 CertificateSigningRequest."""

    allow_create_on_update = True

    def set_defaults(self, obj: Object) -> None:
        """Set no defaults: the v1 API has none."""

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Fill in the requesting user from the authenticated user, replacing any values that the client sent."""
        super().prepare_create(obj, ctx)
        spec = obj["spec"]
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
        spec["username"] = ctx.user.name
        if ctx.user.uid:
            spec["uid"] = ctx.user.uid
        groups = list(ctx.user.groups)
        spec["groups"] = groups if "system:authenticated" in groups else [*groups, "system:authenticated"]
        if ctx.user.extra:
            spec["extra"] = {name: list(values) for name, values in ctx.user.extra.items()}

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """Restore the spec, which is immutable; approval conditions are changed through their own subresource."""
        super().prepare_update(new, old, ctx)
        new["spec"] = copy_json(old["spec"])

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the request, the usages and the signer name."""
        spec = obj["spec"]
        if not spec.get("request"):
            yield invalid("spec.request", None, "PEM block type must be CERTIFICATE REQUEST")
        if not spec.get("usages"):
            yield required("spec.usages")
        signer = spec.get("signerName") or ""
        if not signer:
            yield required("spec.signerName")
        elif "/" not in signer:
            yield invalid(
                "spec.signerName",
                signer,
                "must be a fully qualified domain and path of the form 'example.com/signer-name'",
            )
