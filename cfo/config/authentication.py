"""The models of ``kuberay.authentication``: who verifies the users of dashboards, and how browsers log in.

Values become arguments of the proxies, so they contain nothing that the kubelet or the proxies would expand or split.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, model_validator

from cfo.config.section import ObjectName, OptionalObjectName, Section, matching

Issuer = Annotated[
    str,
    matching(
        r"https://[A-Za-z0-9.\[\]:-]{1,255}(/[A-Za-z0-9._~/%-]{0,512})?",
        "must be an https URL without query and fragment, such as https://dex.example.com",
    ),
]
# kubelets expand $(NAME) in arguments, and kube-rbac-proxy splits lists at commas
Argument = Annotated[
    str,
    matching(
        r"[!#%&(-+\--~]{0,253}", "must be at most 253 printable ASCII characters except space, comma, quotes and $"
    ),
]


class OIDCConfiguration(Section):
    """Login in a browser by OpenID Connect, with oauth2-proxy. If unset, only bearer tokens are accepted."""

    issuer_url: Issuer = Field(
        alias="issuerURL", description="URL of the OpenID Connect issuer; must be https. Required."
    )
    secret_name: ObjectName = Field(
        description="Secret with the keys `client-id` and `client-secret`, which must exist in the namespace of each "
        "RayCluster. Required."
    )
    ca_secret_name: OptionalObjectName = Field(
        default="",
        description="Secret with the key `ca.crt`, in the namespace of each RayCluster: the CA of the issuer's "
        "certificate; if empty, the CAs in the images.",
    )
    scopes: list[Annotated[Argument, Field(min_length=1)]] = Field(
        default=["openid", "email", "profile"], min_length=1, description="Scopes that the login requests."
    )
    username_claim: Annotated[Argument, Field(min_length=1)] = Field(
        default="email",
        description="Claim with the user's name, without which no login succeeds; for `verifier: TokenReview`, the one "
        "that the API server uses.",
    )
    username_prefix: Argument = Field(
        default="oidc:",
        description="Prefix of the user's name in RBAC bindings, so that it is no name of another authenticator; only "
        "for `verifier: OIDC`.",
    )
    groups_claim: Annotated[Argument, Field(min_length=1)] = Field(
        default="groups", description="Claim with the user's groups; only for `verifier: OIDC`."
    )
    groups_prefix: Argument = Field(
        default="oidc:",
        description="Prefix of the groups in RBAC bindings, so that none is a group such as `system:masters`; only for "
        "`verifier: OIDC`.",
    )

    @model_validator(mode="after")
    def _scopes_include_openid(self) -> Self:
        if "openid" not in self.scopes:
            raise ValueError("scopes must contain openid")
        return self


class AccessConfiguration(Section):
    """The resource that users must have permission for: GET requests need `get`, POST `create`, DELETE `delete`."""

    api_group: Argument = Field(default="ray.io", description="API group of the resource; empty for the core group.")
    resource: Annotated[Argument, Field(min_length=1)] = Field(
        default="rayclusters",
        description="Resource, in the namespace of the RayCluster. For `rayclusters`, the permission is checked for "
        "the RayCluster itself, otherwise for all objects of the namespace.",
    )
    subresource: Argument = Field(default="", description="Subresource; empty for none.")


class AuthenticationConfiguration(Section):
    """The proxies that authenticate the users of dashboards without OpenShift's OAuth server."""

    enabled: StrictBool = Field(
        default=False,
        description="Whether new RayClusters get the proxies. They replace OpenShift's OAuth proxy. Needs "
        "`rayDashboardOAuthEnabled`, or a profile that enforces authentication.",
    )
    verifier: Literal["TokenReview", "OIDC"] = Field(
        default="TokenReview",
        description="Who verifies tokens. `TokenReview`: the API server, so all Kubernetes tokens are accepted, and "
        "OIDC logins if it trusts the issuer. `OIDC`: the proxy, so only ID tokens of `oidc` are accepted.",
    )
    audiences: list[Annotated[Argument, Field(min_length=1)]] = Field(
        default_factory=list,
        description="Audiences of which a token must have one, for `verifier: TokenReview`; if empty, those of the API "
        "server.",
    )
    access: AccessConfiguration = Field(default_factory=AccessConfiguration)
    oidc: OIDCConfiguration | None = None

    @model_validator(mode="after")
    def _verifier_is_configured(self) -> Self:
        if self.verifier == "OIDC":
            if self.oidc is None:
                raise ValueError("verifier OIDC requires oidc")
            if self.audiences:
                raise ValueError("audiences must be empty for verifier OIDC, where it is the client ID")
            if not self.oidc.groups_prefix:
                raise ValueError("oidc.groupsPrefix must not be empty for verifier OIDC")
            if not self.oidc.username_prefix:
                raise ValueError("oidc.usernamePrefix must not be empty for verifier OIDC")
        return self
