"""Authentication and impersonation: static tokens, client certificates, service account tokens."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import Object
from envtest.apimachinery.user import ANONYMOUS, MASTERS, User, service_account
from envtest.auth.attributes import Attributes, attributes_of
from envtest.auth.authenticator import Authenticator, TokenFileError, load_token_file
from envtest.auth.impersonation import LastModes, impersonate, requested_user
from envtest.auth.rbac import Decision
from envtest.auth.token_keys import PublicKey
from envtest.auth.tokens import ISSUER, BoundObject, InvalidToken, ServiceAccountTokens
from envtest.storage import Store

ACCOUNTS, PODS, SECRETS = (
    GroupResource("", name) for name in ("serviceaccounts", "pods", "secrets")
)


def core_object(kind: str, name: str, uid: str, **fields: Any) -> Object:
    metadata = {"namespace": "a", "name": name, "uid": uid}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store() -> Store:
    store = Store()
    store.create(ACCOUNTS, core_object("ServiceAccount", "bot", "u1"))
    return store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(store: Store, clock: Clock) -> ServiceAccountTokens:
    return ServiceAccountTokens(store, clock=clock)


@pytest.fixture
def authenticator(tokens: ServiceAccountTokens) -> Authenticator:
    return Authenticator(
        tokens, admin_token="secret", users={"alice-token": User("alice", "1", ("team-a",))}
    )


def test_static_tokens_authenticate_users(authenticator: Authenticator) -> None:
    admin = authenticator.authenticate("Bearer secret")
    assert admin == User("admin", "admin", (MASTERS, "system:authenticated"))
    alice = authenticator.authenticate("bearer alice-token")
    assert alice == User("alice", "1", ("team-a", "system:authenticated"))


@pytest.mark.parametrize(
    "header", ["", "Basic YTpi", "Bearer", "Bearer ", "Bearer  secret", "Token secret"]
)
def test_request_without_bearer_token_is_anonymous(
    authenticator: Authenticator, header: str
) -> None:
    assert authenticator.authenticate(header) is ANONYMOUS


@pytest.mark.parametrize("token", ["wrong", "a.b.c", "..", "secre", "e30.e30.e30"])
def test_unknown_token_is_rejected(authenticator: Authenticator, token: str) -> None:
    assert authenticator.authenticate(f"Bearer {token}") is None


def test_client_certificate_authenticates_user_and_groups(authenticator: Authenticator) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "devs"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "ops"),
            x509.NameAttribute(NameOID.COMMON_NAME, "carol"),
        ]
    )
    start = datetime.now(UTC) - timedelta(hours=1)
    builder = x509.CertificateBuilder(
        subject, subject, key.public_key(), 1, start, start + timedelta(days=1)
    )
    der = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    user = authenticator.authenticate("Bearer wrong", der)
    assert user is not None
    assert (user.name, user.groups) == ("carol", ("devs", "ops", "system:authenticated"))


def test_service_account_token_authenticates_account(
    tokens: ServiceAccountTokens, authenticator: Authenticator
) -> None:
    issued = tokens.issue("a", "bot", "u1", seconds=600)
    user = authenticator.authenticate(f"Bearer {issued.token}")
    assert user is not None
    assert (user.name, user.uid) == ("system:serviceaccount:a:bot", "u1")
    assert user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:a",
        "system:authenticated",
    )
    assert user.extra["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


def test_token_expires(tokens: ServiceAccountTokens, clock: Clock) -> None:
    issued = tokens.issue("a", "bot", "u1", seconds=600)
    clock.now += 599
    tokens.authenticate(issued.token)
    clock.now += 1
    with pytest.raises(InvalidToken, match="expired"):
        tokens.authenticate(issued.token)


def test_token_is_invalid_after_deletion_of_its_account(
    tokens: ServiceAccountTokens, store: Store
) -> None:
    issued = tokens.issue("a", "bot", "u1")
    record = store.get(ACCOUNTS, "a", "bot")
    assert record is not None
    store.delete(ACCOUNTS, record)
    with pytest.raises(InvalidToken, match="not found"):
        tokens.authenticate(issued.token)
    store.create(ACCOUNTS, core_object("ServiceAccount", "bot", "u2"))
    with pytest.raises(InvalidToken, match="does not match claim"):
        tokens.authenticate(issued.token)


def test_token_is_invalid_after_deletion_of_its_pod(
    tokens: ServiceAccountTokens, store: Store
) -> None:
    pod = store.create(PODS, core_object("Pod", "p", "pu"))
    issued = tokens.issue("a", "bot", "u1", bound=BoundObject("pod", "p", "pu"))
    user, _ = tokens.authenticate(issued.token)
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    store.delete(PODS, pod)
    with pytest.raises(InvalidToken, match="has been invalidated"):
        tokens.authenticate(issued.token)


def test_token_is_valid_for_its_audiences_only(
    tokens: ServiceAccountTokens, authenticator: Authenticator
) -> None:
    issued = tokens.issue("a", "bot", "u1", audiences=["vault"])
    assert authenticator.authenticate(f"Bearer {issued.token}") is None
    assert authenticator.identify(issued.token, ["vault", ISSUER]).audiences == ["vault"]
    with pytest.raises(
        InvalidToken, match=r'\[invalid bearer token, token audiences \["vault"\] is invalid'
    ):
        authenticator.identify(issued.token)
    assert authenticator.identify("alice-token", ["vault", ISSUER]).audiences == [ISSUER]
    for token in ("alice-token", "wrong"):
        with pytest.raises(InvalidToken, match=r"^invalid bearer token$"):
            authenticator.identify(token, ["vault"])


def test_token_signed_by_another_server_is_rejected(
    tokens: ServiceAccountTokens, store: Store, clock: Clock
) -> None:
    other = ServiceAccountTokens(store, key=ServiceAccountTokens(store).private_key())
    with pytest.raises(InvalidToken, match="invalid signature"):
        tokens.authenticate(other.issue("a", "bot", "u1").token)
    kept = ServiceAccountTokens(store, key=tokens.private_key(), clock=clock)
    kept.authenticate(tokens.issue("a", "bot", "u1").token)


def test_tampered_token_is_rejected(tokens: ServiceAccountTokens) -> None:
    head, claims, signature = tokens.issue("a", "bot", "u1").token.split(".")
    for forged in (
        f"{head}.{claims}.{signature[:-4]}AAAA",
        f"{head}.{claims}.",
        f"{head}.{claims[:-1]}.{signature}",
    ):
        with pytest.raises(InvalidToken):
            tokens.authenticate(forged)


def test_signature_of_a_token_is_verified_once(
    tokens: ServiceAccountTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = tokens.issue("a", "bot", "u1").token
    verify = PublicKey.verify
    verified: list[bytes] = []

    def count_and_verify(self: PublicKey, signature: bytes, signed: bytes) -> bool:
        verified.append(signature)
        return verify(self, signature, signed)

    monkeypatch.setattr(PublicKey, "verify", count_and_verify)
    for _ in range(3):
        tokens.authenticate(issued)
    assert len(verified) == 1
    for _ in range(2):
        with pytest.raises(InvalidToken, match="invalid signature"):
            tokens.authenticate(f"{issued[:-4]}AAAA")
    assert len(verified) == 3


def test_number_of_verified_tokens_is_limited(
    tokens: ServiceAccountTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envtest.auth.tokens._MAX_VERIFIED", 2)
    issued = [tokens.issue("a", "bot", "u1").token for _ in range(5)]
    for token in issued:
        tokens.authenticate(token)
    assert len(tokens._verified) <= 2


def test_legacy_token_is_valid_while_its_secret_exists(
    tokens: ServiceAccountTokens, store: Store
) -> None:
    token = tokens.legacy_token("a", "bot", "u1", "bot-token")
    with pytest.raises(InvalidToken):
        tokens.authenticate(token)
    data = {"token": b64encode(token.encode()).decode()}
    store.create(SECRETS, core_object("Secret", "bot-token", "s", data=data))
    user, _ = tokens.authenticate(token)
    assert user.name == "system:serviceaccount:a:bot"


def test_token_file_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('t1,alice,1,"team-a,team-b"\n\nt2,bob,2\n', encoding="utf-8")
    assert load_token_file(file) == {
        "t1": User("alice", "1", ("team-a", "team-b")),
        "t2": User("bob", "2"),
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [("t1,alice\n", "line 1.*three columns"), ("t,a,1\n,b,2\n", "line 2.*empty")],
)
def test_invalid_token_file_error_names_the_line(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TokenFileError, match=problem):
        load_token_file(file)
    with pytest.raises(TokenFileError, match="cannot read"):
        load_token_file(tmp_path / "absent.csv")


def test_service_account_user_names_are_parsed() -> None:
    assert service_account("system:serviceaccount:a:bot") == ("a", "bot")
    for name in (
        "alice",
        "system:serviceaccount:a",
        "system:serviceaccount::b",
        "system:serviceaccount:a:b:c",
    ):
        assert service_account(name) is None


class FakeAuthorizer:
    """Allows the given (verb, resource, name) triples; ``*`` matches any value."""

    def __init__(self, *grants: tuple[str, str, str]) -> None:
        self.grants = set(grants)

    def authorize(self, attributes: Attributes) -> Decision:
        request = (attributes.verb, attributes.combined_resource, attributes.name)
        return Decision(
            any(
                all(g in ("*", a) for g, a in zip(grant, request, strict=True))
                for grant in self.grants
            )
        )


LIST = attributes_of("GET", "/api/v1/namespaces/a/configmaps", {}, User("alice"))


def test_impersonation_headers_are_parsed() -> None:
    headers = [("Impersonate-User", "bob"), ("Impersonate-Group", "a"), ("impersonate-group", "b")]
    requested = requested_user(
        [*headers, ("Impersonate-Extra-Acme.io%2Fteam", "x"), ("Impersonate-Uid", "u")]
    )
    assert requested == User("bob", "u", ("a", "b"), {"acme.io/team": ("x",)})
    assert requested_user([("Accept", "x")]) is None
    with pytest.raises(StatusError) as error:
        requested_user([("Impersonate-Group", "devs")])
    assert error.value.message == (
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"devs"}, '
        "Extra:map[string][]string(nil)} without impersonating a user name"
    )


def test_legacy_impersonate_permission_is_sufficient() -> None:
    user = impersonate(FakeAuthorizer(("impersonate", "users", "bob")), LIST, User("bob"))
    assert user == User("bob", groups=("system:authenticated",))
    with pytest.raises(StatusError):
        impersonate(
            FakeAuthorizer(("impersonate", "users", "bob")), LIST, User("bob", groups=("devs",))
        )


def test_error_is_that_of_the_mode_that_last_allowed_such_a_request() -> None:
    last_modes, authorizer = LastModes(limit=1), FakeAuthorizer(("impersonate", "users", "bob"))
    impersonate(authorizer, LIST, User("bob"), last_modes)
    with pytest.raises(
        StatusError,
        match='users "joe" is forbidden: User "alice" cannot impersonate resource "users"',
    ):
        impersonate(authorizer, LIST, User("joe"), last_modes)
    with pytest.raises(StatusError, match="cannot impersonate-on:user-info:watch"):
        impersonate(authorizer, LIST.with_verb("watch"), User("joe"), last_modes)


def test_constrained_impersonation_requires_both_permissions() -> None:
    on_resource, on_user = (
        ("impersonate-on:user-info:list", "configmaps", ""),
        ("impersonate:user-info", "users", "bob"),
    )
    assert impersonate(FakeAuthorizer(on_resource, on_user), LIST, User("bob")).name == "bob"
    for grants in ((on_resource,), (on_user,), ()):
        with pytest.raises(StatusError):
            impersonate(FakeAuthorizer(*grants), LIST, User("bob"))
    with pytest.raises(StatusError) as error:
        impersonate(FakeAuthorizer(), LIST, User("bob"))
    assert error.value.message == (
        'configmaps is forbidden: User "alice" cannot impersonate-on:user-info:list resource "configmaps" '
        'in API group "" in the namespace "a"'
    )


def test_constrained_impersonation_rejects_masters_group() -> None:
    requested = User("bob", groups=(MASTERS,))
    wildcard = FakeAuthorizer(
        ("impersonate-on:user-info:list", "*", "*"), ("impersonate:user-info", "*", "*")
    )
    with pytest.raises(StatusError, match="system:masters group is not allowed"):
        impersonate(wildcard, LIST, requested)
    assert MASTERS in impersonate(FakeAuthorizer(("impersonate", "*", "*")), LIST, requested).groups


def test_impersonated_service_accounts_and_nodes_get_their_groups() -> None:
    bot = impersonate(
        FakeAuthorizer(("impersonate", "*", "*")), LIST, User("system:serviceaccount:a:bot")
    )
    assert bot.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:a",
        "system:authenticated",
    )
    grants = (
        ("impersonate-on:arbitrary-node:list", "*", "*"),
        ("impersonate:arbitrary-node", "nodes", "n1"),
    )
    node = impersonate(FakeAuthorizer(*grants), LIST, User("system:node:n1"))
    assert node.groups == ("system:nodes", "system:authenticated")
    anonymous = impersonate(
        FakeAuthorizer(("impersonate", "*", "*")), LIST, User("system:anonymous")
    )
    assert anonymous.groups == ("system:unauthenticated",)
