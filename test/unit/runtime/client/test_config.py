"""Client configuration: kubeconfig files, service accounts, credentials, TLS and proxies."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from aiohttp import web

from cfo.console.errors import remedy_of
from cfo.runtime import ClientConfig, ConfigError, Transport, TransportError, load_config
from cfo.runtime.client import APIRequest, CredentialError, KubeconfigError, NoClusterConfigured
from cfo.runtime.client.config import _proxy_for
from cfo.runtime.client.credentials import Credentials
from test.support.api_server import ApiServer, AutoAdvancingClock, json
from test.support.certificates import create_ca, create_certificate, server_ssl_context
from test.support.kubeconfigs import TOKEN, authorization, b64, environment, kubeconfig

# Locations of the configuration.


async def test_explicit_path_is_loaded(tmp_path: Path) -> None:
    config = await load_config(
        str(kubeconfig(tmp_path / "k")), environ=environment(tmp_path, KUBECONFIG="/nowhere")
    )
    assert config.server == "https://api.example.com:6443"
    assert config.namespace == "team"
    assert config.verify
    assert await authorization(config) == f"Bearer {TOKEN}"
    assert TOKEN not in repr(config)
    assert TOKEN not in repr(await config.authenticate())


async def test_kubeconfig_variable_precedes_the_home_directory(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", {"token": "of-home"})
    other = kubeconfig(tmp_path / "other", {"token": "of-variable"})
    assert await authorization(await load_config(environ=environment(tmp_path))) == "Bearer of-home"
    config = await load_config(
        environ=environment(tmp_path, KUBECONFIG=f"/nowhere{os.pathsep}{other}")
    )
    assert await authorization(config) == "Bearer of-variable"


async def test_error_without_configuration_lists_all_locations(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        await load_config(environ=environment(tmp_path))
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "$KUBECONFIG (not set)",
        f"{tmp_path}/.kube/config (no such file)",
        "$KUBERNETES_SERVICE_HOST",
    ):
        assert part in message


CONTEXT = "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
WITH_USER = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
CLUSTER = "clusters: [{name: c, cluster: {server: 'https://x'}}]\n"


HUGE_EXPIRY = b'{"exp": 1e30}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a kubeconfig file: the file is empty"),
        (
            "- a\n- b\n",
            "not a kubeconfig file: must be a mapping with clusters, contexts and users, not a list",
        ),
        (
            "some text",
            "not a kubeconfig file: must be a mapping with clusters, contexts and users, not a single value",
        ),
        ("a: 2001-13-01", "not a kubeconfig file: not valid YAML: month must be in 1..12"),
        ("a: !!bool x", "not a kubeconfig file: not valid YAML"),
        ("a: [b", "not a kubeconfig file: line 2, column 1: not valid YAML"),
        ("[" * 20_000, "not a kubeconfig file: nested too deeply"),
        ("a" * (16 << 20) + "a", "not a kubeconfig file: longer than 16 MiB"),
        ("\x00", "not a kubeconfig file: not valid YAML"),
        ("users: {}\n", "users: not a kubeconfig file: must be a list"),
        ("users: [x]\n", "users[0]: not a kubeconfig file: must be a mapping with a name"),
        ("kind: Config\n", "current-context is not set"),
        ("current-context: x\n", "contexts: no entry is named 'x'"),
        (
            "current-context: x\ncontexts: [{name: x}]\n",
            "contexts[name=x].context: must be a mapping",
        ),
        (CONTEXT, "clusters: no entry is named 'c'"),
        (f"{WITH_USER}{CLUSTER}", "users: no entry is named 'u'"),
        (
            f"{CONTEXT}clusters: [{{name: c, cluster: {{}}}}]\n",
            "clusters[name=c].cluster.server: is missing",
        ),
        (
            f"{CONTEXT}{CLUSTER}".replace("https://x", "api:6443"),
            "server 'api:6443': must be an http or https URL",
        ),
    ],
)
async def test_invalid_kubeconfig_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "k"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        await load_config(
            environ=environment(tmp_path, KUBECONFIG=str(file), KUBERNETES_SERVICE_HOST="10.0.0.1")
        )
    assert message in str(caught.value)
    assert str(caught.value).startswith("$KUBECONFIG: ")
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("user", "cluster", "problem"),
    [
        (
            {},
            {"certificate-authority": "no.crt"},
            "clusters[name=c].cluster.certificate-authority: BASE/no.crt: No such",
        ),
        (
            {},
            {"certificate-authority-data": "!!"},
            "clusters[name=c].cluster.certificate-authority-data: is not valid b",
        ),
        (
            {},
            {"certificate-authority-data": b64(b"x")},
            ".certificate-authority-data: contains no certificate or key",
        ),
        (
            {"client-certificate": "no.crt"},
            {},
            "users[name=u].user.client-certificate: BASE/no.crt: No such file",
        ),
        ({"client-key-data": "%"}, {}, "users[name=u].user.client-key-data: is not valid base64"),
        (
            {"tokenFile": "no.token"},
            {},
            "users[name=u].user.tokenFile: BASE/no.token: No such file or directory",
        ),
        ({"exec": "x"}, {}, "users[name=u].user.exec: must be a mapping"),
        ({"exec": {"apiVersion": "v1"}}, {}, "users[name=u].user.exec.command: is required"),
        ({"exec": {"command": "x"}}, {}, "users[name=u].user.exec.apiVersion: is required"),
        (
            {"auth-provider": {"name": "azure"}},
            {},
            "users[name=u].user.auth-provider: the auth provider 'azure' is not supported; use an exec plugin",
        ),
        (
            {"auth-provider": {"name": "oidc", "config": {"id-token": "secret-token"}}},
            {},
            "users[name=u].user.auth-provider: the login failed: JWT tokens should contain 3",
        ),
        (
            {"auth-provider": {"name": "oidc", "config": {"id-token": f"a.{b64(b'[1]')}.c"}}},
            {},
            "users[name=u].user.auth-provider: the login failed: 'list' object has no attribute 'get'",
        ),
        (
            {"auth-provider": {"name": "oidc", "config": {"id-token": f"a.{b64(HUGE_EXPIRY)}.c"}}},
            {},
            "users[name=u].user.auth-provider: the login failed: timestamp out of range",
        ),
    ],
)
async def test_errors_name_the_file_the_context_and_the_field(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], problem: str
) -> None:
    file = kubeconfig(tmp_path / "k", user, cluster)
    with pytest.raises(ConfigError) as caught:
        await load_config(str(file), environ=environment(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{file} (context here): ")
    assert problem.replace("BASE", str(tmp_path)) in message
    assert "\n" not in message
    assert "secret" not in message
    cause = caught.value.__cause__
    assert isinstance(cause, KubeconfigError)
    assert (cause.file, cause.context) == (str(file), "here")
    assert cause.field.startswith(("users[name=u].user", "clusters[name=c].cluster"))


async def test_only_a_missing_configuration_means_that_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(NoClusterConfigured):
        await load_config(environ=environment(tmp_path))
    with pytest.raises(ConfigError) as caught:
        await load_config("/nowhere", environ=environment(tmp_path))
    assert not isinstance(caught.value, NoClusterConfigured)


async def test_only_a_refused_connection_is_marked_as_refused(unused_tcp_port: int) -> None:
    for server, refused in (
        (f"https://127.0.0.1:{unused_tcp_port}", True),
        ("https://nowhere.invalid", False),
    ):
        async with Transport(ClientConfig(server=server), clock=AutoAdvancingClock()) as transport:
            with pytest.raises(TransportError) as caught:
                await transport.request(APIRequest("GET", "/api"))
        assert caught.value.refused is refused


async def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/nowhere: no such file"):
        await load_config("/nowhere", environ=environment(tmp_path))


async def test_context_can_be_selected(tmp_path: Path) -> None:
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": name}} for name in ("here", "there")
    ]
    users = [{"name": name, "user": {"token": f"of-{name}"}} for name in ("here", "there")]
    file = kubeconfig(tmp_path / "k", contexts=contexts, users=users)
    config = await load_config(str(file), context="there", environ=environment(tmp_path))
    assert await authorization(config) == "Bearer of-there"
    assert config.namespace == "default"
    with pytest.raises(ConfigError, match="contexts: no entry is named 'nowhere'"):
        await load_config(str(file), context="nowhere", environ=environment(tmp_path))


async def test_context_without_user_sends_no_credentials(tmp_path: Path) -> None:
    contexts = [{"name": "here", "context": {"cluster": "c"}}]
    config = await load_config(
        str(kubeconfig(tmp_path / "k", contexts=contexts)), environ=environment(tmp_path)
    )
    assert await config.authenticate() == Credentials()


async def test_errors_contain_no_secrets(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", users=[{"name": "u", "token": TOKEN}])
    with pytest.raises(ConfigError, match=r"users\[name=u\].user: must be a mapping") as caught:
        await load_config(str(file), environ=environment(tmp_path))
    assert TOKEN not in str(caught.value)
    file = kubeconfig(
        tmp_path / "k",
        {"exec": {"command": "x", "env": [{"name": "A", "value": TOKEN}], "args": TOKEN}},
    )
    with pytest.raises(ConfigError) as caught:
        await load_config(str(file), environ=environment(tmp_path))
    assert TOKEN not in str(caught.value)


async def test_secret_that_starts_with_another_secret_is_removed_completely(tmp_path: Path) -> None:
    settings = {"a": "secret", "b": "secret-long"}
    provider = {"name": "secret-long", "config": settings}
    file = kubeconfig(tmp_path / "k", {"auth-provider": provider})
    with pytest.raises(ConfigError, match=r"'\*\*\*' is not supported"):
        await load_config(str(file), environ=environment(tmp_path))


# Credentials.


async def test_token_file_is_read_again_after_60_seconds_and_on_renewal(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    clock = AutoAdvancingClock()
    config = await load_config(
        str(kubeconfig(tmp_path / "k", {"tokenFile": "token"})),
        environ=environment(tmp_path),
        clock=clock,
    )
    assert await authorization(config) == "Bearer first"
    (tmp_path / "token").write_text("second\n")
    clock.elapsed = 59
    assert await authorization(config) == "Bearer first"
    assert await authorization(config, renew=True) == "Bearer second"
    (tmp_path / "token").unlink()
    clock.elapsed = 200
    with structlog.testing.capture_logs() as logs:
        assert await authorization(config) == "Bearer second"
    assert logs[0]["event"] == "Failed to renew credentials, using the previous ones"


async def test_username_and_password_are_sent_as_basic_auth(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", {"username": "u", "password": "p"})
    assert (
        await authorization(await load_config(str(file), environ=environment(tmp_path)))
        == f"Basic {b64(b'u:p')}"
    )


async def test_impersonation_is_sent_in_headers(tmp_path: Path) -> None:
    user = {"token": TOKEN, "as": "bob", "as-groups": ["a", "b"], "as-user-extra": {"x/y": ["1"]}}
    config = await load_config(str(kubeconfig(tmp_path / "k", user)), environ=environment(tmp_path))
    assert config.headers == (
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-x%2Fy", "1"),
    )
    async with ApiServer().run() as server:
        server.answer("GET", "/x", json({}))
        async with Transport(ClientConfig(server=server.url, headers=config.headers)) as transport:
            await transport.request(APIRequest("GET", "/x"))
        headers = server.all_requests[0].headers
        assert isinstance(headers, Mapping)
        assert headers.getall("Impersonate-Group") == ["a", "b"]  # type: ignore[attr-defined]


async def test_kubeconfigs_are_merged_and_their_files_are_relative_to_each(tmp_path: Path) -> None:
    pair = create_certificate(create_ca(), "alice")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two" / "c.pem").write_bytes(pair.cert_pem)
    (tmp_path / "two" / "k.pem").write_bytes(pair.key_pem)
    one = kubeconfig(tmp_path / "one" / "k", users=[])
    two = tmp_path / "two" / "k"
    user = {"client-certificate": "c.pem", "client-key": "k.pem"}
    two.write_text(
        yaml.safe_dump({"current-context": "there", "users": [{"name": "u", "user": user}]})
    )
    config = await load_config(f"{one}{os.pathsep}{two}", environ=environment(tmp_path))
    assert await config.authenticate() == Credentials("", pair.cert_pem, pair.key_pem)


async def test_no_key_remains_in_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    ca, pair = create_ca(), create_certificate(create_ca(), "alice")
    user = {"client-certificate-data": b64(pair.cert_pem), "client-key-data": b64(pair.key_pem)}
    file = kubeconfig(tmp_path / "k", user, {"certificate-authority-data": b64(ca.cert_pem)})
    config = await load_config(str(file), environ=environment(tmp_path))
    assert config.ca_pem == ca.cert_pem
    for renew in (False, True):
        config.ssl_context(await config.authenticate(renew=renew))
    assert list(scratch.iterdir()) == []


# Service accounts.


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("first\n")
    (directory / "namespace").write_text("operators\n")
    (directory / "ca.crt").write_bytes(create_ca().cert_pem)
    return directory


async def test_only_configuration_from_a_service_account_is_in_cluster(
    tmp_path: Path, service_account: Path
) -> None:
    env = {
        "HOME": str(tmp_path),
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    assert (await load_config(environ=env, service_account=service_account)).in_cluster
    assert not ClientConfig(server="https://10.0.0.1", token="t").in_cluster


async def test_service_account_is_loaded_and_its_token_is_renewed(
    tmp_path: Path, service_account: Path
) -> None:
    env = environment(tmp_path, KUBERNETES_SERVICE_HOST="fd00::1", KUBERNETES_SERVICE_PORT="443")
    config = await load_config(environ=env, service_account=service_account)
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "operators")
    assert config.ca_pem == (service_account / "ca.crt").read_bytes()
    assert await authorization(config) == "Bearer first"
    (service_account / "token").write_text("second")
    assert await authorization(config, renew=True) == "Bearer second"
    (service_account / "token").unlink()
    assert await authorization(config, renew=True) == "Bearer second"


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
async def test_incomplete_service_account_is_an_error(
    tmp_path: Path, service_account: Path, missing: str
) -> None:
    (service_account / missing).unlink()
    env = environment(tmp_path, KUBERNETES_SERVICE_HOST="10.0.0.1", KUBERNETES_SERVICE_PORT="443")
    with pytest.raises(ConfigError, match=r"service account in .*: Service .* does not exist"):
        await load_config(environ=env, service_account=service_account)


# TLS.


async def test_server_certificate_is_verified(tmp_path: Path) -> None:
    ca = create_ca()
    async with ApiServer().run(
        server_ssl_context(create_certificate(ca, "api", "127.0.0.1"), tmp_path)
    ) as server:
        server.answer("GET", "/x", json({}))
        async with Transport(ClientConfig(server=server.url, ca_pem=ca.cert_pem)) as transport:
            await transport.request(APIRequest("GET", "/x"))
        clock = AutoAdvancingClock()
        async with Transport(
            ClientConfig(server=server.url, ca_pem=create_ca().cert_pem), clock=clock
        ) as transport:
            with pytest.raises(TransportError, match=r"verification failed: [a-z -]+$") as caught:
                await transport.request(APIRequest("GET", "/x"))
            assert not caught.value.outcome_unknown
            assert "certificate-authority in the kubeconfig" in remedy_of(caught.value)
        async with Transport(ClientConfig(server=server.url, verify=False)) as transport:
            await transport.request(APIRequest("GET", "/x"))
        assert clock.sleeps == []
        assert len(server.all_requests) == 2


async def test_tls_server_name_replaces_the_host_in_verification(tmp_path: Path) -> None:
    ca = create_ca()
    async with ApiServer().run(
        server_ssl_context(create_certificate(ca, "api", "api.internal"), tmp_path)
    ) as server:
        server.answer("GET", "/x", json({}))
        config = ClientConfig(server=server.url, ca_pem=ca.cert_pem)
        async with Transport(config, clock=AutoAdvancingClock()) as transport:
            with pytest.raises(TransportError, match="certificate"):
                await transport.request(APIRequest("GET", "/x"))
        named = ClientConfig(server=server.url, ca_pem=ca.cert_pem, tls_server_name="api.internal")
        async with Transport(named) as transport:
            await transport.request(APIRequest("GET", "/x"))


async def test_renewed_client_certificate_is_used(tmp_path: Path) -> None:
    ca = create_ca()
    pairs = {"old": create_certificate(ca, "old"), "new": create_certificate(ca, "new")}
    current = "old"

    async def credentials(*, renew: bool) -> Credentials:
        nonlocal current
        current = "new" if renew else current
        return Credentials("", pairs[current].cert_pem, pairs[current].key_pem)

    async def identify_client(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = dict(part[0] for part in request.transport.get_extra_info("peercert")["subject"])
        name = subject["commonName"]
        return web.Response(text=name, status=401 if name == "old" else 200)

    async with ApiServer().run(
        server_ssl_context(create_certificate(ca, "api", "127.0.0.1"), tmp_path, client_ca=ca)
    ) as server:
        server.answer("GET", "/x", identify_client)
        config = ClientConfig(server=server.url, ca_pem=ca.cert_pem, credentials=credentials)
        async with Transport(config) as transport:
            assert (await transport.request(APIRequest("GET", "/x"))).body == b"new"


async def test_credential_error_is_a_transport_error(tmp_path: Path) -> None:
    async def credentials(*, renew: bool) -> Credentials:
        raise CredentialError("the plugin is broken")

    async with Transport(
        ClientConfig(server="https://127.0.0.1:1", credentials=credentials)
    ) as transport:
        with pytest.raises(TransportError, match="get things: the plugin is broken") as caught:
            await transport.request(APIRequest("GET", "/x", verb="get", resource="things"))
    assert not caught.value.outcome_unknown


@pytest.mark.parametrize(
    ("ca", "cert", "key"), [(b"nonsense", b"", b""), (b"", b"nonsense", b"nonsense")]
)
def test_invalid_certificates_are_an_error(ca: bytes, cert: bytes, key: bytes) -> None:
    config = ClientConfig(server="https://x", ca_pem=ca)
    with pytest.raises(ConfigError, match="https://x"):
        config.ssl_context(Credentials("", cert, key))


# Proxies.


@pytest.mark.parametrize(
    ("server", "variables", "proxy"),
    [
        ("https://api.example.com", {}, ""),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://api.example.com", {"https_proxy": "p:3128"}, "http://p:3128"),
        ("https://api.example.com", {"HTTP_PROXY": "http://p"}, ""),
        ("http://api.example.com", {"HTTP_PROXY": "http://p"}, "http://p"),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p"}, ""),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://p"}, ""),
        (
            "https://172.30.0.1:443",
            {"HTTPS_PROXY": "http://p", "NO_PROXY": ".svc,172.30.0.0/16"},
            "",
        ),
        (
            "https://172.31.0.1:443",
            {"HTTPS_PROXY": "http://p", "NO_PROXY": ".svc,172.30.0.0/16"},
            "http://p",
        ),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p", "NO_PROXY": "example.com"}, ""),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p", "NO_PROXY": ".example.com, x"}, ""),
        (
            "https://api.example.com",
            {"HTTPS_PROXY": "http://p", "NO_PROXY": "ample.com"},
            "http://p",
        ),
        (
            "https://api.example.com:6443",
            {"HTTPS_PROXY": "http://p", "no_proxy": "api.example.com:6443"},
            "",
        ),
        (
            "https://api.example.com:6443",
            {"HTTPS_PROXY": "http://p", "NO_PROXY": "api.example.com:443"},
            "http://p",
        ),
        ("https://[fd00::1]:443", {"HTTPS_PROXY": "http://p", "NO_PROXY": "fd00::/8"}, ""),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p", "NO_PROXY": "*"}, ""),
    ],
)
def test_proxy_variables_are_applied(server: str, variables: dict[str, str], proxy: str) -> None:
    assert _proxy_for(server, variables) == proxy


async def test_requests_go_through_the_proxy() -> None:
    async with ApiServer().run() as proxy:
        proxy.answer("GET", "/x", json({"through": "proxy"}))
        config = ClientConfig(server="http://api.invalid", proxy_url=proxy.url)
        async with Transport(config) as transport:
            assert (await transport.request(APIRequest("GET", "/x"))).body == b'{"through":"proxy"}'
        assert proxy.all_requests[0].headers["Host"] == "api.invalid"


async def test_proxy_password_is_not_in_errors(unused_tcp_port: int) -> None:
    config = ClientConfig(
        server="http://api.invalid", proxy_url=f"http://me:{TOKEN}@127.0.0.1:{unused_tcp_port}"
    )
    async with Transport(config, clock=AutoAdvancingClock()) as transport:
        with pytest.raises(TransportError, match="refused") as caught:
            await transport.request(APIRequest("GET", "/x"))
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(config)


async def test_unsupported_proxy_scheme_is_an_error(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", cluster={"proxy-url": "socks5://p:1080"})
    with pytest.raises(ConfigError, match="only http and https proxies"):
        await load_config(str(file), environ=environment(tmp_path))
