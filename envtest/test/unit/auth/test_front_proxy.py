"""Authentication by a front proxy; the expectations are recorded from a real kube-apiserver 1.36."""

from __future__ import annotations

import json

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from multidict import CIMultiDict

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.user import ANONYMOUS, User
from envtest.auth.authenticator import Authenticator
from envtest.auth.front_proxy import ClientAuthorities, FrontProxy
from envtest.auth.tokens import ServiceAccountTokens
from envtest.formats.certificate_authority import CertificateAuthority
from envtest.server.initial_objects import publish_authentication_in
from envtest.storage import Store

AUTHENTICATED = "system:authenticated"
USERS, PROXIES, OTHERS = (
    CertificateAuthority(name=name) for name in ("users", "proxies", "others")
)
PROXY = FrontProxy(
    PROXIES.pem,
    allowed_names=("front", "front2"),
    username_headers=("X-Remote-User", "X-Other-User"),
    group_headers=("X-Remote-Group",),
    uid_headers=("X-Remote-Uid",),
    extra_prefixes=("X-Remote-Extra-", "X-More-"),
)


def certificate(authority: CertificateAuthority, name: str) -> bytes:
    pem = authority.client(name, ()).certificate
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


@pytest.fixture
def authenticator() -> Authenticator:
    return Authenticator(
        ServiceAccountTokens(Store()),
        users={"t": User("token-user")},
        authorities=ClientAuthorities(USERS.pem, PROXY),
    )


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        ([("X-Remote-User", "ann")], User("ann", groups=(AUTHENTICATED,))),
        ([("X-Remote-User", "ann"), ("X-Remote-Uid", "u1")], User("ann", "u1", (AUTHENTICATED,))),
        ([("X-Remote-User", ""), ("x-other-user", "bob")], User("bob", groups=(AUTHENTICATED,))),
        (
            [("X-Remote-User", "a"), ("X-Remote-Group", "g2"), ("x-remote-group", "g1")],
            User("a", groups=("g2", "g1", AUTHENTICATED)),
        ),
        (
            [
                ("X-Remote-User", "a"),
                ("X-Remote-Extra-Scopes", "s1"),
                ("X-Remote-Extra-scopes", "s2"),
                ("X-Remote-Extra-Acme.com%2Fproject", "p"),
                ("X-More-Thing", "t"),
                ("X-Remote-Extra-a%zz", "x"),
            ],
            User(
                "a",
                groups=(AUTHENTICATED,),
                extra={
                    "scopes": ("s1", "s2"),
                    "acme.com/project": ("p",),
                    "thing": ("t",),
                    "a%zz": ("x",),
                },
            ),
        ),
        (
            [("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated")],
            ANONYMOUS,
        ),
    ],
)
def test_headers_of_the_proxy_name_the_user(
    authenticator: Authenticator, headers: list[tuple[str, str]], user: User
) -> None:
    front = certificate(PROXIES, "front")
    assert authenticator.authenticate("", front, CIMultiDict(headers)) == user


def test_only_the_proxy_can_name_users(authenticator: Authenticator) -> None:
    headers = CIMultiDict([("X-Remote-User", "ann")])
    for peer in (certificate(PROXIES, "bad"), certificate(OTHERS, "front")):
        assert authenticator.authenticate("", peer, headers) is None
    assert authenticator.authenticate("", None, headers) == ANONYMOUS
    user = authenticator.authenticate("", certificate(USERS, "front"), headers)
    assert user is not None
    assert user.name == "front"


def test_proxy_that_names_no_user_is_none_itself(authenticator: Authenticator) -> None:
    front = certificate(PROXIES, "front")
    assert authenticator.authenticate("", front) is None
    user = authenticator.authenticate("Bearer t", front)
    assert user is not None
    assert user.name == "token-user"


def test_without_allowed_names_every_certificate_of_the_ca_is_that_of_a_proxy() -> None:
    proxy = FrontProxy(PROXIES.pem, username_headers=("X-Remote-User",))
    authenticator = Authenticator(
        ServiceAccountTokens(Store()), authorities=ClientAuthorities(None, proxy)
    )
    headers = CIMultiDict([("X-Remote-User", "ann")])
    user = authenticator.authenticate("", certificate(PROXIES, "any"), headers)
    assert user == User("ann", groups=(AUTHENTICATED,))
    assert authenticator.authenticate("", certificate(USERS, "joe"), headers) is None


def test_api_servers_add_their_settings_to_those_of_others() -> None:
    store = Store()
    first = {"client-ca-file": USERS.pem.decode(), **PROXY.settings()}
    publish_authentication_in(store, first, "2026-01-01T00:00:00Z")
    other = FrontProxy(OTHERS.pem, allowed_names=("front", "other"))
    publish_authentication_in(store, other.settings(), "2026-01-01T00:00:00Z")
    record = store.get(
        GroupResource("", "configmaps"), "kube-system", "extension-apiserver-authentication"
    )
    assert record is not None
    data = record.obj()["data"]
    assert data["client-ca-file"] == USERS.pem.decode()
    assert data["requestheader-client-ca-file"] == (PROXIES.pem + OTHERS.pem).decode()
    assert json.loads(data["requestheader-allowed-names"]) == ["front", "front2", "other"]
    assert json.loads(data["requestheader-username-headers"]) == ["X-Remote-User", "X-Other-User"]
    anyone = FrontProxy(PROXIES.pem, username_headers=("X-Remote-User",))
    publish_authentication_in(store, anyone.settings(), "2026-01-01T00:00:00Z")
    changed = store.get(
        GroupResource("", "configmaps"), "kube-system", "extension-apiserver-authentication"
    )
    assert changed is not None
    assert changed.obj()["data"]["requestheader-allowed-names"] == "[]"
