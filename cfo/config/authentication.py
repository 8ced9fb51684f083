"""The models of ``kuberay.authentication``: who verifies the users of dashboards, and how browsers log in.

Values become arguments of the proxies, so they contain nothing that the kubelet or the proxies would expand or split.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from msgspec import Meta, field

from cfo.config.section import Section
from cfo.config.values import ObjectName, OptionalObjectName, matching

Issuer = Annotated[
    str,
    matching(
        r"https://[A-Za-z0-9.\[\]:-]{1,255}(/[A-Za-z0-9._~/%-]{0,512})?",
        "an https URL without query and fragment, such as https://dex.example.com",
    ),
]
# kubelets expand $(NAME) in arguments, and kube-rbac-proxy splits lists at commas
_CHARACTERS: Final = "printable ASCII characters except space, comma, quotes and $"
Argument = Annotated[str, matching(r"[!#%&(-+\--~]{1,253}", f"1 to 253 {_CHARACTERS}")]
OptionalArgument = Annotated[str, matching(r"[!#%&(-+\--~]{0,253}", f"at most 253 {_CHARACTERS}")]


class OIDCConfiguration(Section):
    """Login in a browser by OpenID Connect, with oauth2-proxy. If unset, only bearer tokens are accepted."""

    issuer_url: Annotated[Issuer, "URL of the OpenID Connect issuer; must be https. Required."] = (
        field(name="issuerURL")
    )
    secret_name: Annotated[
        ObjectName,
        "Secret with the keys `client-id` and `client-secret`, which must exist in the namespace of each "
        "RayCluster. Required.",
    ]
    ca_secret_name: Annotated[
        OptionalObjectName,
        "Secret with the key `ca.crt`, in the namespace of each RayCluster: the CA of the issuer's "
        "certificate; if empty, the CAs in the images.",
    ] = ""
    scopes: Annotated[
        list[Argument],
        Meta(min_length=1, description="a list that is not empty"),
        "Scopes that the login requests.",
    ] = field(default_factory=lambda: ["openid", "email", "profile"])
    username_claim: Annotated[
        Argument,
        "Claim with the user's name, without which no login succeeds; for `verifier: TokenReview`, the API server's.",
    ] = "email"
    username_prefix: Annotated[
        OptionalArgument, "Prefix of the user's name in RBAC bindings; only for `verifier: OIDC`."
    ] = "oidc:"
    groups_claim: Annotated[
        Argument, "Claim with the user's groups; only for `verifier: OIDC`."
    ] = "groups"
    groups_prefix: Annotated[
        OptionalArgument, "Prefix of the groups in RBAC bindings; only for `verifier: OIDC`."
    ] = "oidc:"

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        if "openid" not in self.scopes:
            yield "scopes must contain openid"


class AccessConfiguration(Section):
    """The resource that users must have permission for: GET requests need `get`, POST `create`, DELETE `delete`."""

    api_group: Annotated[
        OptionalArgument, "API group of the resource; empty for the core group."
    ] = "ray.io"
    resource: Annotated[
        Argument,
        "Resource, in the namespace of the RayCluster. For `rayclusters`, the RayCluster itself, otherwise all "
        "objects of the namespace.",
    ] = "rayclusters"
    subresource: Annotated[OptionalArgument, "Subresource; empty for none."] = ""


class AuthenticationConfiguration(Section):
    """The proxies that authenticate the users of dashboards without OpenShift's OAuth server."""

    enabled: Annotated[
        bool,
        "Whether new RayClusters get the proxies. They replace OpenShift's OAuth proxy. Needs "
        "`rayDashboardOAuthEnabled`, or a profile that enforces authentication.",
    ] = False
    verifier: Annotated[
        Literal["TokenReview", "OIDC"],
        "Who verifies tokens. `TokenReview`: the API server, with all Kubernetes tokens, and OIDC logins if it "
        "trusts the issuer. `OIDC`: the proxy, with ID tokens of `oidc`.",
    ] = "TokenReview"
    audiences: Annotated[
        list[Argument],
        "Audiences of which a token must have one, for `verifier: TokenReview`; if empty, those of the API server.",
    ] = field(default_factory=list)
    access: AccessConfiguration = AccessConfiguration()
    oidc: OIDCConfiguration | None = None

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        if self.verifier == "OIDC":
            if self.oidc is None:
                yield "verifier OIDC requires oidc"
            if self.audiences:
                yield "audiences must be empty for verifier OIDC, where it is the client ID"
            if self.oidc is not None and not self.oidc.groups_prefix:
                yield "oidc.groupsPrefix must not be empty for verifier OIDC"
            if self.oidc is not None and not self.oidc.username_prefix:
                yield "oidc.usernamePrefix must not be empty for verifier OIDC"
