"""Logins of kubeconfigs: exec plugins, OIDC and the auth provider gcp."""

from __future__ import annotations

import base64
import json as jsonlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from cfo.runtime import ConfigError, load_config
from cfo.runtime.client import CredentialError
from cfo.runtime.client import config as config_module
from cfo.runtime.client.credentials import Credentials, Kubeconfig
from test.support.api_server import ApiServer, AutoAdvancingClock, json
from test.support.certificates import create_ca, create_certificate, server_ssl_context
from test.support.kubeconfigs import TOKEN, authorization, b64, environment, kubeconfig


def exec_plugin_user(
    directory: Path, status: Mapping[str, Any], *, code: int = 0
) -> dict[str, Any]:
    """Create an exec plugin, and return a kubeconfig user that runs it by a relative path.

    The plugin counts its runs and prints ``status``, in which ``RUN`` is replaced by the number of the run and ``ENV``
    by the environment variable that the kubeconfig sets; then it exits with ``code``.
    """
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    script = directory / "plugin.py"
    script.write_text(
        f"#!{sys.executable}\n"
        "import os, pathlib, sys\n"
        f"runs = pathlib.Path({str(directory / 'runs')!r})\n"
        "run = len(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text('x' * run)\n"
        "print('it does not work', file=sys.stderr)\n"
        f"print({jsonlib.dumps(credential)!r}.replace('RUN', str(run)).replace('ENV', os.environ['WHO']))\n"
        f"sys.exit({code})\n"
    )
    script.chmod(0o755)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./plugin.py",
            "env": [{"name": "WHO", "value": "me"}],
            "interactiveMode": "Never",
        }
    }


async def test_exec_plugin_runs_again_before_its_token_expires(tmp_path: Path) -> None:
    clock = AutoAdvancingClock()
    expiry = (clock.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = exec_plugin_user(tmp_path, {"token": "ENV-RUN", "expirationTimestamp": expiry})
    config = await load_config(
        str(kubeconfig(tmp_path / "k", user)), environ=environment(tmp_path), clock=clock
    )
    assert await authorization(config) == "Bearer me-1"
    clock.elapsed = 3539
    assert await authorization(config) == "Bearer me-1"
    clock.elapsed = 3541
    assert await authorization(config) == "Bearer me-2"


async def test_exec_plugin_runs_again_on_renewal_but_at_most_every_five_seconds(
    tmp_path: Path,
) -> None:
    clock = AutoAdvancingClock()
    config = await load_config(
        str(kubeconfig(tmp_path / "k", exec_plugin_user(tmp_path, {"token": "ENV-RUN"}))),
        environ=environment(tmp_path),
        clock=clock,
    )
    assert await authorization(config, renew=True) == "Bearer me-1"
    clock.elapsed = 6
    assert await authorization(config, renew=True) == "Bearer me-2"
    assert await authorization(config, renew=True) == "Bearer me-2"
    assert await authorization(config) == "Bearer me-2"


async def test_concurrent_renewals_run_a_failing_exec_plugin_once(tmp_path: Path) -> None:
    clock = AutoAdvancingClock()
    file = kubeconfig(tmp_path / "k", exec_plugin_user(tmp_path, {"token": "ENV-RUN"}))
    config = await load_config(str(file), environ=environment(tmp_path), clock=clock)
    exec_plugin_user(tmp_path, {}, code=1)
    clock.elapsed = 6
    outcomes: list[str] = []

    async def renew() -> None:
        try:
            outcomes.append(await authorization(config, renew=True))
        except CredentialError:
            outcomes.append("failed")

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(renew)
    assert outcomes == ["failed", *["Bearer me-1"] * 4]
    assert (tmp_path / "runs").read_text() == "xx"


async def test_exec_plugin_can_return_a_certificate(tmp_path: Path) -> None:
    pair = create_certificate(create_ca(), "alice")
    status = {
        "clientCertificateData": pair.cert_pem.decode(),
        "clientKeyData": pair.key_pem.decode(),
    }
    file = kubeconfig(tmp_path / "k", exec_plugin_user(tmp_path, status))
    config = await load_config(str(file), environ=environment(tmp_path))
    assert await config.authenticate() == Credentials("", pair.cert_pem, pair.key_pem)
    config.ssl_context(await config.authenticate())


async def test_failing_exec_plugin_is_an_error(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", exec_plugin_user(tmp_path, {"token": TOKEN}, code=3))
    with pytest.raises(
        ConfigError, match=r"plugin.py exited with code 3: it does not work$"
    ) as caught:
        await load_config(str(file), environ=environment(tmp_path))
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("printed", "problem"),
    [
        ("x", "printed no valid JSON"),
        ('{"kind": "ExecCredential"}', "printed no ExecCredential with a status"),
        (
            '{"kind": "ExecCredential", "apiVersion": "v1", "status": 1}',
            "printed no ExecCredential",
        ),
        ("[]", "printed no ExecCredential with a status"),
        ("1", "printed no ExecCredential with a status"),
        (
            '{"kind": "ExecCredential", "apiVersion": "v9", "status": {}}',
            "printed an ExecCredential of v9, not v1",
        ),
    ],
)
async def test_invalid_output_of_an_exec_plugin_is_an_error(
    tmp_path: Path, printed: str, problem: str
) -> None:
    user = {"exec": {"apiVersion": "v1", "command": "echo", "args": [printed]}}
    with pytest.raises(ConfigError, match=f"users.*exec: the plugin echo {problem}"):
        await load_config(str(kubeconfig(tmp_path / "k", user)), environ=environment(tmp_path))


async def test_exec_plugin_without_credentials_is_an_error(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", exec_plugin_user(tmp_path, {}))
    with pytest.raises(ConfigError, match="neither a token nor a certificate"):
        await load_config(str(file), environ=environment(tmp_path))


async def test_missing_exec_plugin_is_an_error(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}
    user = {"exec": {**plugin, "installHint": "Install it:\n\n  brew install\x1b[31m it\n"}}
    with pytest.raises(ConfigError) as caught:
        await load_config(str(kubeconfig(tmp_path / "k", user)), environ=environment(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path}/k (context here): users[name=u].user.exec.command: the plugin no-such-plugin is not installed; "
        "Install it: brew install\\x1b[31m it"
    )


async def test_login_that_does_not_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(_: Kubeconfig) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Kubeconfig, "load", endless)
    monkeypatch.setattr(config_module, "_LOGIN_SECONDS", 0.0)
    file = kubeconfig(tmp_path / "k", {})
    with pytest.raises(ConfigError, match=r"/k: the login took longer than 0 s$"):
        await load_config(str(file), environ=environment(tmp_path))


def id_token(expires: datetime) -> str:
    """Return a JWT of which only the claims are valid; the client reads no other part."""
    claims = jsonlib.dumps({"exp": int(expires.timestamp())}).encode()
    return f"header.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.signature"


async def test_expired_oidc_token_is_refreshed_over_verified_tls(tmp_path: Path) -> None:
    ca, now = create_ca(), datetime.now(UTC)
    old, new = id_token(now - timedelta(hours=1)), id_token(now + timedelta(hours=1))
    async with ApiServer().run(
        server_ssl_context(create_certificate(ca, "idp", "127.0.0.1"), tmp_path)
    ) as issuer:
        endpoint = {"token_endpoint": f"{issuer.url}/token"}
        issuer.answer("GET", "/.well-known/openid-configuration", json(endpoint))
        issuer.answer("POST", "/token", json({"id_token": new, "refresh_token": "next"}))
        settings = {
            "client-id": "me",
            "client-secret": TOKEN,
            "id-token": old,
            "refresh-token": "first",
            "idp-issuer-url": issuer.url,
        }
        user = {"auth-provider": {"name": "oidc", "config": settings}}
        file = kubeconfig(tmp_path / "k", user)
        with pytest.raises(ConfigError, match="certificate verify failed") as caught:
            await load_config(str(file), environ=environment(tmp_path))
        assert issuer.all_requests == []
        assert TOKEN not in str(caught.value)
        settings["idp-certificate-authority-data"] = b64(ca.cert_pem)
        file = kubeconfig(tmp_path / "k", user)
        assert (
            await authorization(await load_config(str(file), environ=environment(tmp_path)))
            == f"Bearer {new}"
        )
        assert "refresh_token=first" in issuer.all_requests[-1].body
    saved = yaml.safe_load(file.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (saved["id-token"], saved["refresh-token"]) == (new, "next")


async def test_exec_plugin_that_needs_a_terminal_does_not_run_without_one(tmp_path: Path) -> None:
    user = exec_plugin_user(tmp_path, {"token": "ENV-RUN"})
    user["exec"]["interactiveMode"] = "Always"
    with pytest.raises(ConfigError, match=r"exec.interactiveMode: the plugin .* needs a terminal"):
        await load_config(str(kubeconfig(tmp_path / "k", user)), environ=environment(tmp_path))
    assert not (tmp_path / "runs").exists()


async def test_exec_plugin_can_return_a_token_and_a_certificate(tmp_path: Path) -> None:
    pair = create_certificate(create_ca(), "alice")
    status = {
        "token": "ENV-RUN",
        "clientCertificateData": pair.cert_pem.decode(),
        "clientKeyData": pair.key_pem.decode(),
    }
    file = kubeconfig(tmp_path / "k", exec_plugin_user(tmp_path, status))
    config = await load_config(str(file), environ=environment(tmp_path))
    assert await config.authenticate() == Credentials("Bearer me-1", pair.cert_pem, pair.key_pem)


async def test_certificate_of_an_exec_plugin_remains_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    pair = create_certificate(create_ca(), "alice")
    status = {
        "clientCertificateData": pair.cert_pem.decode(),
        "clientKeyData": pair.key_pem.decode(),
    }
    file = kubeconfig(tmp_path / "k", exec_plugin_user(tmp_path, status))
    config = await load_config(str(file), environ=environment(tmp_path))
    config.ssl_context(await config.authenticate())
    assert list(scratch.iterdir()) == []


async def test_exec_plugin_that_a_cancelled_login_left_running_is_not_started_again(
    tmp_path: Path,
) -> None:
    user = exec_plugin_user(tmp_path, {"token": "ENV-RUN"})
    clock = AutoAdvancingClock()
    file = kubeconfig(tmp_path / "k", user)
    config = await load_config(str(file), environ=environment(tmp_path), clock=clock)
    released = tmp_path / "released"
    script = tmp_path / "plugin.py"
    lines = script.read_text().splitlines()
    wait = f"\nimport time\nwhile not pathlib.Path({str(released)!r}).exists(): time.sleep(0.01)"
    lines[-2] = f"{wait}\n{lines[-2]}"
    script.write_text("\n".join(lines))
    clock.elapsed = 6
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: config.authenticate(renew=True))
        while (tmp_path / "runs").read_text() != "xx":  # noqa: ASYNC110 (another process writes it)
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    released.touch()
    clock.elapsed = 12
    assert await authorization(config, renew=True) == "Bearer me-2"
    assert (tmp_path / "runs").read_text() == "xx"


def oidc_user(issuer: ApiServer, **settings: str) -> dict[str, Any]:
    config = {
        "client-id": "me",
        "client-secret": TOKEN,
        "refresh-token": "first",
        "idp-issuer-url": issuer.url,
        **settings,
    }
    return {"auth-provider": {"name": "oidc", "config": config}}


async def test_id_token_is_refreshed_before_it_expires(tmp_path: Path) -> None:
    clock = AutoAdvancingClock()
    first, second = (id_token(clock.now() + timedelta(hours=hours)) for hours in (1, 2))
    async with ApiServer().run() as issuer:
        endpoint = {"token_endpoint": f"{issuer.url}/token"}
        issuer.answer("GET", "/.well-known/openid-configuration", json(endpoint))
        issuer.answer("POST", "/token", json({"id_token": second}))
        file = kubeconfig(tmp_path / "k", oidc_user(issuer, **{"id-token": first}))
        config = await load_config(str(file), environ=environment(tmp_path), clock=clock)
        clock.elapsed = 3299
        assert await authorization(config) == f"Bearer {first}"
        assert issuer.all_requests == []
        clock.elapsed = 3401
        assert await authorization(config) == f"Bearer {second}"
    saved = yaml.safe_load(file.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (saved["id-token"], saved["refresh-token"]) == (second, "first")


async def test_id_token_with_characters_of_the_url_alphabet_is_read(tmp_path: Path) -> None:
    claims = jsonlib.dumps({"name": "???>>>", "exp": 1 << 32}).encode()
    encoded = base64.urlsafe_b64encode(claims).decode().rstrip("=")
    assert "_" in encoded
    token = f"header.{encoded}.signature"
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
    config = await load_config(str(kubeconfig(tmp_path / "k", user)), environ=environment(tmp_path))
    assert await authorization(config) == f"Bearer {token}"


@pytest.mark.parametrize(
    ("discovery", "token", "problem"),
    [
        (json({}, 404), json({}), "the login failed: 404, message='Not Found'"),
        (json({}), json({}), "the login failed: 'token_endpoint'"),
        (None, json({}, 400), "the login failed: 400, message='Bad Request'"),
        (None, json({}), "the login failed: 'id_token'"),
    ],
)
async def test_failed_refresh_of_an_id_token_is_an_error_without_secrets(
    tmp_path: Path, discovery: Any, token: Any, problem: str
) -> None:
    async with ApiServer().run() as issuer:
        endpoint = {"token_endpoint": f"{issuer.url}/token?secret={TOKEN}"}
        issuer.answer("GET", "/.well-known/openid-configuration", discovery or json(endpoint))
        issuer.answer("POST", "/token", token)
        file = kubeconfig(tmp_path / "k", oidc_user(issuer))
        with pytest.raises(ConfigError) as caught:
            await load_config(str(file), environ=environment(tmp_path))
    assert f"users[name=u].user.auth-provider: {problem}" in str(caught.value)
    assert TOKEN not in str(caught.value)


async def test_id_token_cannot_be_refreshed_without_a_refresh_token(tmp_path: Path) -> None:
    settings = {"client-id": "me", "idp-issuer-url": "https://issuer.invalid"}
    user = {"auth-provider": {"name": "oidc", "config": settings}}
    problem = "no valid id-token, and cannot refresh it without refresh-token"
    with pytest.raises(ConfigError, match=problem):
        await load_config(str(kubeconfig(tmp_path / "k", user)), environ=environment(tmp_path))


def gcp_user(directory: Path, printed: str, **settings: str) -> dict[str, Any]:
    program = directory / "gcloud"
    program.write_text(f"#!{sys.executable}\nprint({printed!r})\n")
    program.chmod(0o755)
    config = {"cmd-path": str(program), "cmd-args": "config config-helper", **settings}
    return {"auth-provider": {"name": "gcp", "config": config}}


async def test_token_of_the_auth_provider_gcp_is_refreshed_before_it_expires(
    tmp_path: Path,
) -> None:
    clock = AutoAdvancingClock()
    expiry = (clock.now() + timedelta(hours=1)).isoformat()
    printed = {"credential": {"access_token": "second", "token_expiry": "2027-01-01T00:00:00Z"}}
    user = gcp_user(tmp_path, jsonlib.dumps(printed), **{"access-token": "first", "expiry": expiry})
    file = kubeconfig(tmp_path / "k", user)
    config = await load_config(str(file), environ=environment(tmp_path), clock=clock)
    assert await authorization(config) == "Bearer first"
    clock.elapsed = 3301
    assert await authorization(config) == "Bearer second"
    saved = yaml.safe_load(file.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert saved["access-token"] == "second"


async def test_failed_login_of_the_auth_provider_gcp_is_an_error_without_secrets(
    tmp_path: Path,
) -> None:
    user = gcp_user(tmp_path, TOKEN)
    with pytest.raises(ConfigError) as caught:
        await load_config(str(kubeconfig(tmp_path / "k", user)), environ=environment(tmp_path))
    assert str(caught.value).endswith(
        "users[name=u].user.auth-provider: the auth provider gcp has no valid access token, and cannot get one; "
        "use the exec plugin gke-gcloud-auth-plugin, as current versions of kubectl do"
    )


# Imports.

REPORT_IMPORTS = """
import asyncio, sys, threading
from pathlib import Path

class ImportReporter:
    def find_spec(self, name, path=None, target=None):
        if name == "kubernetes_asyncio":
            print("imported in", threading.current_thread() is threading.main_thread() and "main" or "worker")

import cfo.runtime

sys.meta_path.insert(0, ImportReporter())

async def load(directory):
    config = await cfo.runtime.load_config(
        environ={"HOME": directory, "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
        service_account=Path(directory) / "serviceaccount",
    )
    await config.authenticate(renew=True)
    print(config.source)

for directory in sys.argv[1:]:
    asyncio.run(load(directory))
"""


def imports_of_load_config(*directories: Path) -> list[str]:
    """Return what a process prints that loads the configuration in each of these home directories."""
    process = subprocess.run(
        [sys.executable, "-c", REPORT_IMPORTS, *map(str, directories)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def pem_user() -> dict[str, Any]:
    pair = create_certificate(create_ca(), "alice")
    return {"client-certificate-data": b64(pair.cert_pem), "client-key-data": b64(pair.key_pem)}


def test_static_credentials_do_not_import_kubernetes_asyncio(tmp_path: Path) -> None:
    oidc = {"name": "oidc", "config": {"id-token": id_token(datetime(2100, 1, 1, tzinfo=UTC))}}
    users = {
        "token": {"token": TOKEN},
        "token-file": {"tokenFile": "token"},
        "certificate": pem_user(),
        "password": {"username": "u", "password": "p"},
        "anonymous": {},
        "valid-id-token": {"auth-provider": oidc},
    }
    files = []
    for name, user in users.items():
        folder = tmp_path / name / ".kube"
        folder.mkdir(parents=True)
        (folder / "token").write_text(TOKEN)
        files.append(kubeconfig(folder / "config", user))
    in_pod = tmp_path / "pod"
    service_account = in_pod / "serviceaccount"
    service_account.mkdir(parents=True)
    (service_account / "token").write_text(TOKEN)
    (service_account / "ca.crt").write_bytes(create_ca().cert_pem)
    homes = [tmp_path / name for name in users]
    assert imports_of_load_config(*homes, in_pod) == [*map(str, files), "the pod's service account"]


def test_exec_plugin_imports_kubernetes_asyncio_outside_of_the_event_loop(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    user = exec_plugin_user(tmp_path / ".kube", {"token": "ENV-RUN"})
    file = kubeconfig(tmp_path / ".kube" / "config", user)
    assert imports_of_load_config(tmp_path) == ["imported in worker", str(file)]
