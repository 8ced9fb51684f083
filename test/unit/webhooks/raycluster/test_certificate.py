from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from cfo.controllers.raycluster import ca
from cfo.webhooks.raycluster.certificate_command import (
    CA_DIRECTORY,
    TLS_DIRECTORY,
    certificate_command,
    head_host_names,
    replace_head_service,
)


def cluster(name: str = "rc", *, service: str | None = None, **status: Any) -> dict[str, Any]:
    head = {"headService": {"metadata": {"name": service}}} if service is not None else {}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"headGroupSpec": head}, "status": status}


def test_the_head_is_reached_by_the_clients_host_and_its_service() -> None:
    assert head_host_names(cluster(), "apps.test") == ["rayclient-rc-ns.apps.test", "rc-head-svc.ns.svc"]


def test_without_a_domain_there_is_no_host() -> None:
    assert head_host_names(cluster(), "") == ["rc-head-svc.ns.svc"]


def test_the_names_follow_the_real_head_service() -> None:
    assert head_host_names(cluster(service="mine"), "") == ["mine.ns.svc"]
    assert head_host_names(cluster(service="mine", head={"serviceName": "real"}), "") == ["real.ns.svc"]
    assert head_host_names(cluster("n" * 50), "") == ["n" * 41 + "-head-svc.ns.svc"]


@pytest.mark.parametrize("service", ["$(reboot)", "a b", 'x"; reboot; "', "`id`", "A", "%s"])
def test_what_is_no_host_name_never_reaches_the_shell(service: str) -> None:
    assert head_host_names(cluster(service=service), "apps.test") == ["rayclient-rc-ns.apps.test"]
    words = certificate_command(head_host_names(cluster(), ""))
    assert replace_head_service(words, cluster(), cluster(service=service)) == words


def test_a_renamed_service_is_the_only_change() -> None:
    before, after = cluster(), cluster(service="mine")
    for domain in ("", "apps.test"):
        words = certificate_command(head_host_names(before, domain))
        assert replace_head_service(words, before, after) == certificate_command(head_host_names(after, domain))
        assert replace_head_service(words, before, before) == words


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
@pytest.mark.parametrize("algorithm", ["ecdsa", "rsa"])
def test_the_command_makes_a_certificate_of_the_clusters_authority(algorithm: Any, tmp_path: Path) -> None:
    authority = ca.create(algorithm)
    for folder in ("ca", "tls"):
        (tmp_path / folder).mkdir()
    for name, content in authority.data().items():
        (tmp_path / "ca" / name).write_bytes(content)
    shell, option, script = certificate_command(head_host_names(cluster(), "apps.test"))
    script = script.replace(CA_DIRECTORY, str(tmp_path / "ca")).replace(TLS_DIRECTORY, str(tmp_path / "tls"))
    subprocess.run(
        [shell, option, script], check=True, capture_output=True, env={"FQ_RAY_IP": "rc-head-svc.ns.svc.cluster.local"}
    )
    made = x509.load_pem_x509_certificate((tmp_path / "tls" / "server.crt").read_bytes())
    made.verify_directly_issued_by(authority.certificate)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) >= {
        "127.0.0.1",
        "localhost",
        "rc-head-svc.ns.svc.cluster.local",
        "rayclient-rc-ns.apps.test",
        "rc-head-svc.ns.svc",
    }
    assert (tmp_path / "tls" / "server.key").exists()
