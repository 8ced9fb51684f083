"""The command of the init container that creates the TLS certificate of a Ray node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from cfo.api.raycluster.names import head_host_names
from cfo.controllers.raycluster import ca
from cfo.webhooks.raycluster.mtls import (
    CA_DIRECTORY,
    CA_KEY_DIRECTORY,
    TLS_DIRECTORY,
    head_service_replacement,
    signing_command,
)


def cluster(name: str = "rc", *, service: str | None = None, **status: Any) -> dict[str, Any]:
    head = {"headService": {"metadata": {"name": service}}} if service is not None else {}
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"headGroupSpec": head},
        "status": status,
    }


def test_certificate_names_are_client_host_and_head_service() -> None:
    assert head_host_names(cluster(), "apps.test") == [
        "rayclient-rc-ns.apps.test",
        "rc-head-svc.ns.svc",
    ]


def test_client_host_requires_ingress_domain() -> None:
    assert head_host_names(cluster(), "") == ["rc-head-svc.ns.svc"]


def test_names_follow_actual_head_service() -> None:
    assert head_host_names(cluster(service="mine"), "") == ["mine.ns.svc"]
    assert head_host_names(cluster(service="mine", head={"serviceName": "real"}), "") == [
        "real.ns.svc"
    ]
    assert head_host_names(cluster("n" * 50), "") == ["n" * 41 + "-head-svc.ns.svc"]


@pytest.mark.parametrize("service", ["$(reboot)", "a b", 'x"; reboot; "', "`id`", "A", "%s"])
def test_invalid_host_name_is_never_passed_to_the_shell(service: str) -> None:
    assert head_host_names(cluster(service=service), "") == ["rc-head-svc.ns.svc"]
    assert head_host_names(cluster(head={"serviceName": service}), "") == ["rc-head-svc.ns.svc"]
    command = signing_command(head_host_names(cluster(), ""))
    assert head_service_replacement(cluster(), cluster(service=service))(command) == command


def test_renamed_head_service_is_replaced_in_command() -> None:
    before, after = cluster(), cluster(service="mine")
    for domain in ("", "apps.test"):
        command = signing_command(head_host_names(before, domain))
        assert head_service_replacement(before, after)(command) == signing_command(
            head_host_names(after, domain)
        )
        assert head_service_replacement(before, before)(command) == command


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("algorithm", ["ecdsa", "rsa"])
def test_command_creates_certificate_signed_by_cluster_ca(algorithm: Any, tmp_path: Path) -> None:
    cluster_ca = ca.create(algorithm)
    directories = {CA_DIRECTORY: "ca", CA_KEY_DIRECTORY: "key", TLS_DIRECTORY: "tls"}
    for folder in directories.values():
        (tmp_path / folder).mkdir()
    for folder, name in (("ca", "ca.crt"), ("key", "ca.key")):
        (tmp_path / folder / name).write_bytes(cluster_ca.data()[name])
    shell, option, script = signing_command(head_host_names(cluster(), "apps.test"))
    for directory in sorted(directories, key=len, reverse=True):
        script = script.replace(directory, str(tmp_path / directories[directory]))
    subprocess.run(
        [shell, option, script],
        check=True,
        capture_output=True,
        env={"FQ_RAY_IP": "rc-head-svc.ns.svc.cluster.local"},
    )
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls" / "server.crt").read_bytes())
    certificate.verify_directly_issued_by(cluster_ca.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) >= {
        "127.0.0.1",
        "localhost",
        "rc-head-svc.ns.svc.cluster.local",
        "rayclient-rc-ns.apps.test",
        "rc-head-svc.ns.svc",
    }
    assert {path.name for path in (tmp_path / "tls").iterdir()} >= {"server.key", "ca.crt"}
    assert not [
        path
        for path in (tmp_path / "tls").iterdir()
        if path.read_bytes() == cluster_ca.data()["ca.key"]
    ]
