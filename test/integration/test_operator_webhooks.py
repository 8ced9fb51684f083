"""The webhooks of ``cfo run`` as a separate process: certificates, ``--webhook-url``, replicas and killed runs."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import yaml
from cryptography import x509

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.operator import WEBHOOK_SECRET_NAME, AddressInUse, webhook_configurations
from cfo.operator import run as run_in_process
from cfo.runtime import ClientConfig
from cfo.runtime.client.errors import APIError
from cfo.runtime.objects.kinds import (
    CONFIG_MAP,
    MUTATING_WEBHOOK_CONFIGURATION,
    SECRET,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects.unstructured import NamespacedName, Object, name_of
from cfo.runtime.pki.rotation import parse_secret
from cfo.runtime.process.listener import bind_socket, free_port
from cfo.runtime.webhook.certificates.client_configs import ORIGINAL_ANNOTATION, ca_bundles_of
from cfo.version import CONFIG_MAP_NAME
from test.support.certificates import create_ca, create_certificate, server_ssl_context
from test.support.config_map_webhooks import free_url
from test.support.operator_process import (
    PLAIN_CONFIG,
    SHORT_ELECTION,
    create_config_map,
    run_operator,
)
from test.support.raycluster_environment import (
    VANILLA_CRDS,
    Environment,
    eventually,
    ray_cluster,
    start_environment,
)

SECRET_KEY = NamespacedName("default", WEBHOOK_SECRET_NAME)


def settings(
    *,
    election: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    **webhook: Any,
) -> dict[str, str]:
    document = {
        **PLAIN_CONFIG,
        "metrics": metrics or PLAIN_CONFIG["metrics"],
        "leaderElection": election or {},
        "webhook": {"bindAddress": "127.0.0.1:0", **webhook},
    }
    return {"config.yaml": yaml.safe_dump(document)}


async def configurations(environment: Environment) -> list[Object]:
    return [
        item
        for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
        for item in await environment.client.list(kind)
    ]


async def create_configurations(environment: Environment) -> list[Object]:
    """Create the webhook configurations of the operator's manifests."""
    return [
        await environment.create(configuration)
        for configuration in webhook_configurations("default")
    ]


def webhook_targets(found: list[Object]) -> set[str]:
    """Return the URL of each webhook, or ``service`` for a webhook with a Service reference."""
    return {
        hook["clientConfig"].get("url", "service")
        for configuration in found
        for hook in configuration["webhooks"]
    }


async def test_certificates_are_created_and_injected_as_by_the_go_operator(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, settings())
        created_configurations = await create_configurations(environment)
        async with run_operator(environment, tmp_path) as operator:
            await operator.ready()
            secret = await environment.get(SECRET, WEBHOOK_SECRET_NAME, "default")
            stored = parse_secret(secret["data"])
            assert stored.problems == ()
            assert stored.ca is not None
            assert stored.pair is not None
            assert stored.ca.certificate.subject.rfc4514_string() == "O=openshift.ai,CN=codeflare"
            names = stored.pair.leaf.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            ).value
            assert "codeflare-operator-webhook-service.default.svc" in names.get_values_for_type(
                x509.DNSName
            )
            found = await configurations(environment)
            assert {name_of(configuration) for configuration in found} == {
                name_of(configuration) for configuration in created_configurations
            }
            for configuration in found:
                assert [
                    x509.load_pem_x509_certificates(bundle)
                    for bundle in ca_bundles_of(configuration).values()
                ] == [[stored.ca.certificate] for _ in configuration["webhooks"]]
            operator.process.send_signal(signal.SIGTERM)
            assert await operator.exit_code() == 0, operator.output
        assert "PRIVATE KEY" not in operator.output


def certificate_properties(pem: bytes) -> dict[str, Any]:
    """Return the properties of a certificate in the format of the recordings."""
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
                    found[name]["set"] = [
                        usage for usage in usages if getattr(extension.value, usage)
                    ]
                if isinstance(extension.value, x509.ExtendedKeyUsage):
                    found[name]["set"] = [
                        "serverAuth" for usage in extension.value if "serverAuth" in str(usage)
                    ]
                if isinstance(extension.value, x509.BasicConstraints):
                    found[name] |= {
                        "ca": extension.value.ca,
                        "pathLength": extension.value.path_length,
                    }
    assert len(found) == len(certificate.extensions)
    return {
        "issuer": ",".join(sorted(certificate.issuer.rfc4514_string().split(","))),
        "days": (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days,
        "signature": certificate.signature_hash_algorithm.name
        if certificate.signature_hash_algorithm
        else "",
        "version": certificate.version.name,
        "key": f"RSAPublicKey-{certificate.public_key().key_size}",  # type: ignore[union-attr]
        "extensions": found,
        "pemBlocks": pem.count(b"-----BEGIN"),
    }


async def test_certificate_secret_equals_recording(tmp_path: Path, shared: Path) -> None:
    recorded = yaml.safe_load(
        (shared / "golden" / "startup" / "vanilla" / "certificates.yaml").read_text()
    )
    expected = recorded["then"]["secret"]
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, settings())
        await create_configurations(environment)
        async with run_operator(environment, tmp_path) as operator:
            await operator.ready()
            secret = await environment.get(SECRET, WEBHOOK_SECRET_NAME, "default")
    data = {name: b64decode(value) for name, value in secret["data"].items()}
    assert data.keys() == expected.keys()
    for name in ("ca.crt", "tls.crt"):
        expected_properties = {
            key: value for key, value in expected[name]["certificate"].items() if key != "subject"
        }
        assert certificate_properties(data[name]) == expected_properties
    for name in ("ca.key", "tls.key"):
        assert data[name].decode().splitlines()[0].strip("-") == expected[name]["privateKey"]


async def test_readiness_check_reports_missing_webhook_configuration(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, settings(enabled=True))
        async with run_operator(environment, tmp_path) as operator:
            address = await operator.address("health")
            async with aiohttp.ClientSession(address) as session:

                async def is_reported() -> bool:
                    async with session.get("/readyz") as response:
                        text = await response.text()
                        return response.status == 500 and (
                            "MutatingWebhookConfiguration codeflare-operator-mutating-webhook-configuration "
                            "does not exist" in text
                        )

                await eventually(is_reported, "the missing configuration")
            await create_configurations(environment)
            await operator.ready()


async def test_readiness_check_names_each_cause_once_for_each_object(tmp_path: Path) -> None:
    """The other owner is dead, and its Service stays, so that no webhook of the objects trusts our certificate."""
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, settings())
        for configuration in webhook_configurations("elsewhere"):
            await environment.create(configuration)
        async with run_operator(environment, tmp_path) as operator:
            health = await operator.address("health")
            async with aiohttp.ClientSession(health) as session:

                async def problem() -> str | None:
                    async with session.get("/readyz?verbose") as response:
                        text = await response.text()
                    return text if "does not contain the CA" in text else None

                text = str(await eventually(problem, "the problem"))
    assert re.findall(r"the caBundle of (all \d+ webhooks) does not", text) == [
        f"all {len(configuration['webhooks'])} webhooks"
        for configuration in webhook_configurations("elsewhere")
    ]


async def test_invalid_webhook_url_is_reported_in_one_line_with_code_2(tmp_path: Path) -> None:
    async with (
        start_environment(*VANILLA_CRDS) as environment,
        run_operator(environment, tmp_path, "--webhook-url", "http://host:1") as operator,
    ):
        assert await operator.exit_code() == 2
    (line,) = operator.output.splitlines()
    assert json.loads(line)["error"] == (
        "--webhook-url: 'http://host:1': must be https://HOST:PORT, where HOST is a name or IP address that the "
        "API server can reach, and PORT is 1 to 65535"
    )


@pytest.mark.parametrize("installed", [True, False])
async def test_webhook_url_is_served_and_removed_on_exit(
    tmp_path: Path, *, installed: bool
) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, settings())
        if installed:
            await create_configurations(environment)
        before = webhook_targets(await configurations(environment))
        url = free_url()
        async with run_operator(environment, tmp_path, "--webhook-url", str(url)) as operator:
            await operator.ready()
            assert all(
                target.startswith(f"{url}/")
                for target in webhook_targets(await configurations(environment))
            )
            await environment.create(ray_cluster("rc", "default"))
            operator.process.send_signal(signal.SIGTERM)
            assert await operator.exit_code() == 0, operator.output
        after = await configurations(environment)
        assert webhook_targets(after) == before
        assert all(
            ORIGINAL_ANNOTATION not in (configuration["metadata"].get("annotations") or {})
            for configuration in after
        )


@pytest.mark.parametrize("installed", [True, False])
async def test_start_that_fails_leaves_the_webhooks_of_the_living_operator(
    tmp_path: Path, *, installed: bool
) -> None:
    """A second ``cfo run`` with the same URL ends, because the port of the metrics is in use."""
    async with start_environment(*VANILLA_CRDS) as environment:
        metrics = {"bindAddress": f"127.0.0.1:{free_port()}"}
        await create_config_map(environment, settings(metrics=metrics))
        if installed:
            await create_configurations(environment)
        url = str(free_url())
        async with run_operator(environment, tmp_path, "--webhook-url", url) as living:
            await living.ready()
            before = await configurations(environment)
            assert len(before) == 2
            for _ in range(2):
                async with run_operator(environment, tmp_path, "--webhook-url", url) as mistake:
                    assert await mistake.exit_code() == 1
                assert "metrics.bindAddress" in mistake.output
                assert "webhook configuration" not in mistake.output, "neither written nor deleted"
                assert await configurations(environment) == before, "also the same resourceVersion"
            assert living.output.count("Updated webhook configuration") == (2 if installed else 0)


async def test_port_of_another_operator_is_not_shared(tmp_path: Path) -> None:
    """Each process would get half of the other's requests, which fail because of the other CA."""
    ca = create_ca("another cluster")
    tls = server_ssl_context(create_certificate(ca, "hooks", "127.0.0.1"), tmp_path)
    sock = bind_socket(("127.0.0.1", 0), reuse_port=True)
    url = f"https://127.0.0.1:{sock.getsockname()[1]}"
    async with (
        await asyncio.start_server(lambda _, writer: writer.close(), sock=sock, ssl=tls),
        start_environment(*VANILLA_CRDS) as environment,
    ):
        await create_config_map(environment, settings())
        async with run_operator(environment, tmp_path, "--webhook-url", url) as operator:
            assert await operator.exit_code() == 1
        assert (
            "of the webhooks is in use by another process, whose certificate is not signed by"
            in operator.output
        )
        assert await configurations(environment) == [], (
            "no webhook may refer to the port of the other process"
        )


async def test_refused_operator_without_a_configuration_leaves_none_behind(tmp_path: Path) -> None:
    url = str(free_url())
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, settings(election=SHORT_ELECTION))
        await create_configurations(environment)
        async with run_operator(environment, tmp_path, "--webhook-url", url) as operator:
            await operator.ready()
            await environment.delete(await environment.get(CONFIG_MAP, CONFIG_MAP_NAME, "default"))
            other = ("--webhook-url", str(free_url()))
            async with run_operator(environment, tmp_path, *other) as refused:
                assert await refused.exit_code() == 1
        assert "another operator serves" in refused.output
        assert await environment.find(CONFIG_MAP, CONFIG_MAP_NAME, "default") is None


async def test_operators_with_different_urls_do_not_share_a_webhook_configuration(
    tmp_path: Path,
) -> None:
    """The configuration has one URL, so the webhooks of the first operator would not be called anymore."""
    first, second = str(free_url()), str(free_url())
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, settings(election=SHORT_ELECTION))
        await create_configurations(environment)
        async with run_operator(environment, tmp_path, "--webhook-url", first) as operator:
            await operator.ready()
            before = await configurations(environment)
            async with run_operator(environment, tmp_path, "--webhook-url", second) as refused:
                assert await refused.exit_code() == 1
            (message,) = [
                line for line in refused.output.splitlines() if "another operator serves" in line
            ]
            assert f"at {first} (Lease default/codeflare-operator-lock, holder " in message
            assert "; only one CodeFlare operator may reconcile an object: " in message
            assert await configurations(environment) == before
            async with run_operator(environment, tmp_path, "--webhook-url", first) as replica:
                await replica.ready()
            operator.process.kill()
            await operator.exit_code()
        async with run_operator(environment, tmp_path, "--webhook-url", second) as successor:
            await successor.ready()


async def test_operator_does_not_start_while_another_one_serves_its_webhooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Service in the webhook configurations is that of an installation in another namespace, which is alive."""
    ca = create_ca("open data hub")
    host = "codeflare-operator-webhook-service.opendatahub.svc"
    tls = server_ssl_context(create_certificate(ca, "hooks", host), tmp_path)
    resolve = socket.getaddrinfo

    def cluster_dns(name: Any, *arguments: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if name == host else name, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", cluster_dns)
    async with start_environment(*VANILLA_CRDS) as environment:
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls
        )
        loopback = {"metrics": {"bindAddress": "0"}, "health": {"bindAddress": "127.0.0.1:0"}}
        webhook = {"bindAddress": "127.0.0.1:0", "enabled": True}
        await create_config_map(
            environment,
            {"config.yaml": yaml.safe_dump({**PLAIN_CONFIG, **loopback, "webhook": webhook})},
        )
        for configuration in webhook_configurations("opendatahub"):
            for hook in configuration["webhooks"]:
                hook["clientConfig"]["caBundle"] = b64encode(ca.cert_pem).decode()
                hook["clientConfig"]["service"]["port"] = server.sockets[0].getsockname()[1]
            await environment.create(configuration)
        before = await configurations(environment)
        target = ClientConfig.for_control_plane(environment.plane)
        key = NamespacedName("default", CONFIG_MAP_NAME)
        run = partial(run_in_process, target, key, handle_signals=False)
        async with server:
            with (
                anyio.fail_after(120),
                pytest.raises(AddressInUse, match=f"at https://{host}:.*DataScienceCluster"),
            ):
                await run()
        assert await configurations(environment) == before
        # An installation that was left behind does not prevent the start.
        async with anyio.create_task_group() as tasks:
            manager = await tasks.start(run)
            manager.stop()


async def test_webhook_url_of_killed_run_is_removed_by_next_start(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, settings(election=SHORT_ELECTION))
        await create_configurations(environment)
        async with run_operator(
            environment, tmp_path, "--webhook-url", str(free_url())
        ) as operator:
            await operator.ready()
            operator.process.kill()
            await operator.exit_code()
        assert "service" not in webhook_targets(await configurations(environment))
        async with run_operator(environment, tmp_path) as restarted:
            await restarted.ready()
            await eventually(partial(has_only_services, environment), "restored configurations")


async def has_only_services(environment: Environment) -> bool:
    """Whether all webhooks are at a Service again."""
    return webhook_targets(await configurations(environment)) == {"service"}


@pytest.mark.parametrize("stop_signal", [signal.SIGKILL, signal.SIGTERM])
async def test_webhooks_are_served_while_leader_stops(
    tmp_path: Path, stop_signal: signal.Signals
) -> None:
    """Two replicas share an address; a client that creates RayClusters meanwhile sees at most one failure."""
    async with start_environment(*VANILLA_CRDS) as environment:
        await create_config_map(environment, settings(election=SHORT_ELECTION))
        url = str(free_url())
        async with run_operator(environment, tmp_path, "--webhook-url", url) as first:
            await first.ready()
            async with run_operator(environment, tmp_path, "--webhook-url", url) as second:
                await second.ready()
                failures: list[APIError] = []
                created_count = 0
                wanted = None
                while created_count != wanted:
                    try:
                        created = await environment.create(
                            ray_cluster(f"rc-{created_count}-{len(failures)}", "default")
                        )
                        assert created["spec"]["headGroupSpec"]["template"]["spec"][
                            "initContainers"
                        ]
                        created_count += 1
                    except APIError as error:
                        failures.append(error)
                    if created_count == 5:
                        first.process.send_signal(stop_signal)
                    if wanted is None and first.process.returncode is not None:
                        wanted = created_count + 10
                    await asyncio.sleep(0.1)
                assert len(failures) <= (stop_signal == signal.SIGKILL), (
                    "only requests in flight to a killed process may fail"
                )
                assert all(
                    target.startswith(f"{url}/")
                    for target in webhook_targets(await configurations(environment))
                )

                async def reconciled() -> bool:
                    found = await environment.client.list(RAY_CLUSTER, namespace="default")
                    secrets = await environment.child_names(SECRET, "default")
                    return len(found) == created_count and len(secrets) >= created_count

                await eventually(reconciled, "reconciliation by the other replica")
