"""The plugins CertificateApproval, CertificateSigning and CertificateSubjectRestriction.

Approvers and signers of a CertificateSigningRequest need the permission ``approve`` or ``sign`` for its signer, in
addition to that for the subresource.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from envtest.admission.chain import Plugin
from envtest.admission.namespace_lifecycle import rejection
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.apimachinery.user import MASTERS, User
from envtest.auth.attributes import Attributes
from envtest.auth.rbac import Authorizer
from envtest.registry.resource import RequestContext

__all__ = ["CertificatePermission", "CertificateSubjectRestriction"]

_GROUP: Final = "certificates.k8s.io"
_REQUESTS: Final = GroupResource(_GROUP, "certificatesigningrequests")
_CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"


class CertificatePermission(Plugin):
    """Checks the permission for the signer when a request is approved, denied or signed."""

    resources = (_REQUESTS,)

    def __init__(self, authorizer: Authorizer, *, subresource: str, verb: str) -> None:
        self._authorizer = authorizer
        self._subresource = subresource
        self._verb = verb

    @classmethod
    def approval(cls, authorizer: Authorizer) -> CertificatePermission:
        """Return the CertificateApproval plugin."""
        return cls(authorizer, subresource="approval", verb="approve")

    @classmethod
    def signing(cls, authorizer: Authorizer) -> CertificatePermission:
        """Return the CertificateSigning plugin."""
        return cls(authorizer, subresource="status", verb="sign")

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check the permission. Raises StatusError (403)."""
        verb = self._verb
        if ctx.operation != "UPDATE" or old is None:
            return
        if ctx.subresource != self._subresource:
            return
        if verb == "sign" and (obj.get("status") or {}) == (old.get("status") or {}):
            return
        signer = old["spec"]["signerName"]
        if not any(
            self._is_allowed(ctx.user, verb, name)
            for name in (signer, f"{signer.partition('/')[0]}/*")
        ):
            why = f'user not permitted to {verb} requests with signerName "{signer}"'
            raise rejection(ctx, obj, why)

    def _is_allowed(self, user: User, verb: str, name: str) -> bool:
        attributes = Attributes(
            user=user,
            verb=verb,
            group=_GROUP,
            version="*",
            resource="signers",
            name=name,
            is_resource_request=True,
        )
        return self._authorizer.authorize(attributes).allowed


class CertificateSubjectRestriction(Plugin):
    """Forbids requests for client certificates of the group ``system:masters``."""

    resources = (_REQUESTS,)

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check the subject of a new request. Raises StatusError (403)."""
        if ctx.operation != "CREATE" or ctx.subresource:
            return
        if obj["spec"].get("signerName") != _CLIENT_SIGNER:
            return
        subject = x509.load_pem_x509_csr(b64decode(obj["spec"]["request"])).subject
        if MASTERS in {
            attribute.value
            for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        }:
            why = f"use of {_CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
            raise rejection(ctx, obj, why)
