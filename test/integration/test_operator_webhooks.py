"""``cfo run`` and its webhooks as processes: certificates, ``--webhook-url``, replicas and kills."""

from __future__ import annotations

import asyncio
import signal
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from cryptography import x509

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.operator import WEBHOOK_SECRET_NAME, webhook_configurations
from cfo.runtime.client.errors import APIError
from cfo.runtime.kinds import MUTATING_WEBHOOK_CONFIGURATION, SECRET, VALIDATING_WEBHOOK_CONFIGURATION
from cfo.runtime.objects import NamespacedName, Object, name_of
from cfo.runtime.webhook.certificates.announcement import ORIGINAL, bundles_of
from cfo.runtime.webhook.certificates.certificate_authority import read
from test.support.config_map_webhooks import free_url
from test.support.operator_process import PLAIN, configure, operator
from test.support.raycluster_environment import VANILLA_CRDS, Environment, eventually, ray_cluster, start_environment

SECRET_KEY = NamespacedName("default", WEBHOOK_SECRET_NAME)


def settings(**webhook: Any) -> dict[str, str]:
    return {"config.yaml": yaml.safe_dump({**PLAIN, "webhook": {"bindAddress": "127.0.0.1:0", **webhook}})}


async def configurations(there: Environment) -> list[Object]:
    return [
        item
        for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
        for item in await there.client.list(kind)
    ]


async def install(there: Environment) -> list[Object]:
    """What the manifests of the operator bring."""
    return [await there.create(each) for each in webhook_configurations("default")]


def targets(found: list[Object]) -> set[str]:
    return {hook["clientConfig"].get("url", "service") for each in found for hook in each["webhooks"]}


async def test_certificates_are_made_and_injected_as_the_go_operator_does(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, settings())
        made = await install(there)
        async with operator(there, tmp_path) as running:
            await running.ready()
            secret = await there.get(SECRET, WEBHOOK_SECRET_NAME, "default")
            stored = read(secret["data"])
            assert stored.problems == ()
            assert stored.authority is not None
            assert stored.pair is not None
            assert stored.authority.certificate.subject.rfc4514_string() == "O=openshift.ai,CN=codeflare"
            names = stored.pair.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert "codeflare-operator-webhook-service.default.svc" in names.get_values_for_type(x509.DNSName)
            found = await configurations(there)
            assert {name_of(each) for each in found} == {name_of(each) for each in made}
            for each in found:
                assert [x509.load_pem_x509_certificates(bundle) for bundle in bundles_of(each).values()] == [
                    [stored.authority.certificate] for _ in each["webhooks"]
                ]
            running.process.send_signal(signal.SIGTERM)
            assert await running.exit_code() == 0, running.output
        assert "PRIVATE KEY" not in running.output


def described(pem: bytes) -> dict[str, Any]:
    """A certificate in the words of the recordings."""
    certificate = x509.load_pem_x509_certificate(pem)
    names = {
        "keyUsage": x509.KeyUsage,
        "extendedKeyUsage": x509.ExtendedKeyUsage,
        "basicConstraints": x509.BasicConstraints,
        "subjectKeyIdentifier": x509.SubjectKeyIdentifier,
        "authorityKeyIdentifier": x509.AuthorityKeyIdentifier,
        "subjectAltName": x509.SubjectAlternativeName,
    }
    usages = ("digital_signature", "key_encipherment", "key_cert_sign")
    found: dict[str, Any] = {}
    for name, kind in names.items():
        for extension in certificate.extensions:
            if isinstance(extension.value, kind):
                found[name] = {"critical": extension.critical}
                if isinstance(extension.value, x509.KeyUsage):
                    found[name]["set"] = [usage for usage in usages if getattr(extension.value, usage)]
                if isinstance(extension.value, x509.ExtendedKeyUsage):
                    found[name]["set"] = ["serverAuth" for usage in extension.value if "serverAuth" in str(usage)]
                if isinstance(extension.value, x509.BasicConstraints):
                    found[name] |= {"ca": extension.value.ca, "pathLength": extension.value.path_length}
    assert len(found) == len(certificate.extensions)
    return {
        "issuer": ",".join(sorted(certificate.issuer.rfc4514_string().split(","))),
        "days": (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days,
        "signature": certificate.signature_hash_algorithm.name if certificate.signature_hash_algorithm else "",
        "version": certificate.version.name,
        "key": f"RSAPublicKey-{certificate.public_key().key_size}",  # type: ignore[union-attr]
        "extensions": found,
        "pemBlocks": pem.count(b"-----BEGIN"),
    }


async def test_the_secret_holds_what_the_recording_holds(tmp_path: Path, shared: Path) -> None:
    recorded = yaml.safe_load((shared / "golden" / "startup" / "vanilla" / "certificates.yaml").read_text())
    expected = recorded["then"]["secret"]
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, settings())
        await install(there)
        async with operator(there, tmp_path) as running:
            await running.ready()
            secret = await there.get(SECRET, WEBHOOK_SECRET_NAME, "default")
    data = {name: b64decode(value) for name, value in secret["data"].items()}
    assert data.keys() == expected.keys()
    for name in ("ca.crt", "tls.crt"):
        wanted = {key: value for key, value in expected[name]["certificate"].items() if key != "subject"}
        assert described(data[name]) == wanted
    for name in ("ca.key", "tls.key"):
        assert data[name].decode().splitlines()[0].strip("-") == expected[name]["privateKey"]


async def test_a_missing_configuration_is_named_by_the_readiness_check(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, settings(enabled=True))
        async with operator(there, tmp_path) as running:
            address = await running.address("health")
            async with aiohttp.ClientSession(address) as session:

                async def look() -> bool:
                    async with session.get("/readyz") as answer:
                        text = await answer.text()
                        return answer.status == 500 and (
                            "MutatingWebhookConfiguration codeflare-operator-mutating-webhook-configuration "
                            "does not exist" in text
                        )

                await eventually(look, "what is missing is said")
            await install(there)
            await running.ready()


async def test_a_broken_url_is_one_line_and_code_2(tmp_path: Path) -> None:
    async with (
        start_environment(*VANILLA_CRDS) as there,
        operator(there, tmp_path, "--webhook-url", "http://here:1") as running,
    ):
        assert await running.exit_code() == 2
    assert running.output == (
        "Error: --webhook-url: 'http://here:1': must be https://HOST:PORT, where HOST is a name or an IP address that "
        "the API server reaches\n"
    )


@pytest.mark.parametrize("installed", [True, False])
async def test_a_url_is_served_and_taken_back_on_exit(tmp_path: Path, *, installed: bool) -> None:
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, settings())
        if installed:
            await install(there)
        before = targets(await configurations(there))
        url = free_url()
        async with operator(there, tmp_path, "--webhook-url", str(url)) as running:
            await running.ready()
            assert all(target.startswith(f"{url}/") for target in targets(await configurations(there)))
            await there.create(ray_cluster("rc", "default"))
            running.process.send_signal(signal.SIGTERM)
            assert await running.exit_code() == 0, running.output
        after = await configurations(there)
        assert targets(after) == before
        assert all(ORIGINAL not in (each["metadata"].get("annotations") or {}) for each in after)


async def test_a_killed_run_is_put_right_by_the_next_start(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, settings())
        await install(there)
        async with operator(there, tmp_path, "--webhook-url", str(free_url())) as running:
            await running.ready()
            running.process.kill()
            await running.exit_code()
        assert "service" not in targets(await configurations(there))
        async with operator(there, tmp_path) as again:
            await again.ready()
            assert targets(await configurations(there)) == {"service"}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_webhooks_answer_throughout_the_end_of_the_leader(tmp_path: Path, how: signal.Signals) -> None:
    """Two replicas share one address; a client that creates a RayCluster each 100 ms hardly notices that one ends."""
    async with start_environment(*VANILLA_CRDS) as there:
        election = {"leaderElect": True, "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}
        await configure(there, {"config.yaml": yaml.safe_dump({**PLAIN, "leaderElection": election})})
        url = str(free_url())
        async with operator(there, tmp_path, "--webhook-url", url) as first:
            await first.ready()
            async with operator(there, tmp_path, "--webhook-url", url) as second:
                await second.ready()
                failures: list[APIError] = []
                made = 0
                while made < 50:
                    try:
                        created = await there.create(ray_cluster(f"rc-{made}-{len(failures)}", "default"))
                        assert created["spec"]["headGroupSpec"]["template"]["spec"]["initContainers"]
                        made += 1
                    except APIError as error:
                        failures.append(error)
                    if made == 15 and first.process.returncode is None:
                        first.process.send_signal(how)
                    await asyncio.sleep(0.1)
                assert len(failures) <= (how == signal.SIGKILL), "only requests in flight to a killed process may fail"
                assert all(target.startswith(f"{url}/") for target in targets(await configurations(there)))

                async def reconciled() -> bool:
                    found = await there.client.list(RAY_CLUSTER, namespace="default")
                    secrets = await there.child_names(SECRET, "default")
                    return len(found) == made and len(secrets) >= made

                await eventually(reconciled, "the other replica takes over")
