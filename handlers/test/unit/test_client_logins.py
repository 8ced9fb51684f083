"""Client libraries that handlers use themselves are logged in, as by kopf; ``kubernetes`` is a double."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_asyncio.client
import pytest
import yaml

import cfo_handlers as kopf
from cfo_handlers.activities import log_in
from cfo_handlers.environment import Environment

SERVER = "https://cluster.example.com:6443"


class ConfigException(Exception):
    """The error of the double."""


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    config = {
        "clusters": [{"name": "a", "cluster": {"server": SERVER}}],
        "users": [{"name": "a", "user": {"token": "secret"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    # kubernetes_asyncio reads the variable when it is imported.
    monkeypatch.setattr(
        "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path)
    )
    return path


@pytest.fixture(autouse=True)
def _configuration_of_kubernetes_asyncio() -> Iterator[None]:
    kubernetes_asyncio.client.Configuration.set_default(None)
    yield
    kubernetes_asyncio.client.Configuration.set_default(None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install a double of the package ``kubernetes``, and return the names of its functions that were called."""
    called: list[str] = []
    package, module = ModuleType("kubernetes"), ModuleType("kubernetes.config")
    double: Any = module
    double.ConfigException = ConfigException
    double.load_kube_config = lambda: called.append("kubeconfig")
    double.load_incluster_config = lambda: called.append("service account")
    monkeypatch.setattr(package, "config", module, raising=False)
    monkeypatch.setitem(sys.modules, "kubernetes", package)
    monkeypatch.setitem(sys.modules, "kubernetes.config", module)
    return called


def fail() -> None:
    raise ConfigException("no such file")


def configured_server() -> str | None:
    host: str | None = kubernetes_asyncio.client.Configuration.get_default_copy().host
    return host


async def test_client_libraries_are_configured_without_login_handlers(calls: list[str]) -> None:
    config = await log_in(Environment(kopf.OperatorRegistry()))
    assert config.server == SERVER
    assert calls == ["kubeconfig"]
    assert configured_server() == SERVER


async def test_client_library_uses_the_service_account_without_a_kubeconfig(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubernetes.config.load_kube_config", fail)
    kopf.login_via_client()
    assert calls == ["service account"]


async def test_login_handler_decides_which_libraries_are_configured(calls: list[str]) -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, id="login")
    def login(**kwargs: Any) -> Any:
        return kopf.login_with_kubeconfig(**kwargs)

    assert (await log_in(Environment(registry))).server == SERVER
    assert calls == []
    assert configured_server() != SERVER


async def test_login_handlers_can_call_the_logins_of_libraries(calls: list[str]) -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, id="sync")
    def login(**kwargs: Any) -> Any:
        return kopf.login_via_client(**kwargs)

    @kopf.on.login(registry=registry, id="async")
    async def login_async(**kwargs: Any) -> Any:
        return await kopf.login_via_async_client(**kwargs)

    assert (await log_in(Environment(registry))).server == SERVER
    assert calls == ["kubeconfig"]
    assert configured_server() == SERVER


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ({"token": "secret"}, "login handler login: returned a value of type dict: must return "),
        (None, "login handlers login: one must return a ConnectionInfo, or login_via_client"),
    ],
)
async def test_login_handler_without_credentials_is_an_error(result: Any, problem: str) -> None:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(lambda **_: result)
    with pytest.raises(kopf.LoginError, match=problem):
        await log_in(Environment(registry))


async def test_failed_login_of_a_library_does_not_end_the_operator(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kubernetes.config.load_kube_config", fail)
    monkeypatch.setattr("kubernetes.config.load_incluster_config", fail)
    assert (await log_in(Environment(kopf.OperatorRegistry()))).server == SERVER
    output = capsys.readouterr().out
    assert "Login failed" in output
    assert "no such file" in output
    with pytest.raises(kopf.LoginError, match="library kubernetes: no such file"):
        kopf.login_via_client()
    assert calls == []


async def test_operator_logs_in_without_client_libraries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.delitem(sys.modules, "kubernetes_asyncio")
    assert (await log_in(Environment(kopf.OperatorRegistry()))).server == SERVER
    assert configured_server() != SERVER
