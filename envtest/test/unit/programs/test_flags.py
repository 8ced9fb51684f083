"""Command lines of kube-apiserver and etcd, the options they mean, and admission plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from envtest.admission.plugin_names import DEFAULT_PLUGINS, enabled_plugins
from envtest.programs.flags import ETCD, KUBE_APISERVER, CommandLine, FlagError
from envtest.programs.server_options import ServerOptions, read_options


def options(tmp_path: Path, *arguments: str) -> ServerOptions:
    return read_options(KUBE_APISERVER.parse([f"--cert-dir={tmp_path}", *arguments]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--secure-port=1", "--v=4"],
        ["--secure-port", "1", "--v", "4"],
        ["-secure-port=1"],
        ["--v=4", "--secure-port=1"],
    ],
)
def test_values_follow_an_equals_sign_or_a_space(arguments: list[str]) -> None:
    assert KUBE_APISERVER.parse(arguments) == CommandLine({"secure-port": ["1"]}, [])


def test_boolean_flags_take_no_value_after_a_space() -> None:
    assert (
        KUBE_APISERVER.parse(["--anonymous-auth", "--secure-port=1"]).last("anonymous-auth")
        == "true"
    )
    with pytest.raises(FlagError, match="unexpected argument 'false'"):
        KUBE_APISERVER.parse(["--anonymous-auth", "false"])


def test_repeated_flags_and_lists() -> None:
    command = KUBE_APISERVER.parse(
        ["--etcd-servers=a, b", "--etcd-servers=b,c", "--cert-dir=x", "--cert-dir=y"]
    )
    assert command.items("etcd-servers") == ["a", "b", "c"]
    assert command.last("cert-dir") == "y"


@pytest.mark.parametrize(
    ("flag", "warnings"),
    [
        ("--request-timeout=5s", []),
        ("--etcd-compaction-interval=0", []),
        ("--audit-policy-file=x", []),
        ("--insecure-port=0", []),
        ("--made-up=1", ["unknown flag --made-up is ignored"]),
    ],
)
def test_flags_that_cannot_change_a_response_are_accepted(flag: str, warnings: list[str]) -> None:
    assert KUBE_APISERVER.parse([flag]) == CommandLine({}, warnings)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--insecure-port=8080", "--insecure-port=8080: envtest supports only 0"),
        ("--allow-privileged=false", "supports only true"),
        ("--service-node-port-range=1-2", "supports only 30000-32767"),
        ("--oidc-issuer-url=https://a", "does not implement"),
        ("positional", "unexpected argument"),
        ("--", "unexpected argument"),
    ],
)
def test_flags_that_would_change_responses_are_refused(flag: str, message: str) -> None:
    with pytest.raises(FlagError, match=message):
        KUBE_APISERVER.parse([flag])


def test_etcd_refuses_tls() -> None:
    assert ETCD.parse(["-data-dir", "x", "--quota-backend-bytes=1"]) == CommandLine(
        {"data-dir": ["x"]}, []
    )
    with pytest.raises(FlagError, match="--cert-file"):
        ETCD.parse(["--cert-file=x"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--authorization-mode=AlwaysAllow", "supports only RBAC"),
        ("--secure-port=0", "must be a port"),
        ("--secure-port=99999999999999999999", "must be a port"),
        ("--anonymous-auth=maybe", "must be true or false"),
        ("--client-ca-file=/missing", "No such file"),
        ("--tls-cert-file=/a", "must be specified together"),
        ("--feature-gates=ShardedListAndWatch", "must be NAME=true or NAME=false"),
        ("--service-cluster-ip-range=16.0.0.0/4", "prefix length"),
        ("--enable-admission-plugins=Made", 'enable-admission-plugins plugin "Made" is unknown'),
    ],
)
def test_invalid_options_are_reported(tmp_path: Path, argument: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(tmp_path, argument)


def test_defaults_of_kube_apiserver(tmp_path: Path) -> None:
    found = options(tmp_path)
    assert (found.host, found.port, found.prefix, found.anonymous) == (
        "0.0.0.0",
        6443,
        "/registry",
        True,
    )
    assert found.tokens.issuers == ("https://kubernetes.default.svc",)
    assert "ServiceAccount" in found.plugins
    assert options(tmp_path).certificate == found.certificate
    gates = options(
        tmp_path,
        "--feature-gates=A=true",
        "--runtime-config=api/all=true,batch/v1",
        "--audit-log-path=-",
    )
    assert gates.runtime_config == {"api/all": "true", "batch/v1": "true"}
    assert [message.split("=")[0] for message in gates.messages] == [
        "--feature-gates",
        "--audit-log-path",
    ]
    assert not gates.features
    sharded = options(tmp_path, "--feature-gates=ShardedListAndWatch=true")
    assert set(sharded.features) == {"ShardedListAndWatch"}
    assert sharded.messages == ()


def test_admission_plugins_are_switched() -> None:
    assert enabled_plugins() == DEFAULT_PLUGINS
    assert enabled_plugins(["NodeRestriction", "PodSecurity"]) == DEFAULT_PLUGINS
    assert enabled_plugins(disable=["PodSecurity"]) == DEFAULT_PLUGINS - {"PodSecurity"}
    assert enabled_plugins(disable=["AlwaysPullImages"]) == DEFAULT_PLUGINS
    with pytest.raises(ValueError, match="overlapped"):
        enabled_plugins(["PodSecurity"], ["PodSecurity"])
    with pytest.raises(ValueError, match='does not implement the plugin "AlwaysPullImages"'):
        enabled_plugins(["AlwaysPullImages"])
