"""Tests of certificates that pods request: the injected command, the signer, its permissions, and its refusals."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509

from cfo.api.raycluster.names import REQUESTER_ROLE, REQUESTER_RULES
from cfo.controllers import raycluster
from cfo.controllers.raycluster.node_signer import CERTIFICATE_SIGNING_REQUEST, MAX_DECISIONS
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.availability import AVAILABILITY_RULES
from cfo.runtime.manager.events import EVENT_RULES
from cfo.runtime.objects.kinds import CLUSTER_ROLE_BINDING
from cfo.runtime.objects.rbac import policy_rules
from cfo.runtime.objects.unstructured import NamespacedName, Object, find_condition
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from test.support.certificate_requests import address, certificate_request
from test.support.faults import run_until_crash
from test.support.planes import local_config
from test.support.ray_nodes import RayNode, create_ray_pod, injected_ray_cluster, pod_token
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    run_controllers,
    start_environment,
)
from test.support.tenant_clients import service_account_token

SETTINGS = InjectionSettings(
    version="v1", oauth=False, mtls=True, ingress_domain="apps.test", requests_certificates=True
)
CONFIG = kuberay_config(**PLAIN_SETTINGS, ca={"issuer": "certificateSigningRequest"})
BINDING = NamespacedName("", "codeflare-certificate-requesters-ns")

needs_programs = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("sh", "openssl", "curl")),
    reason="sh, openssl or curl is missing",
)


async def operator_token(env: Environment) -> str:
    """Install the role of pods, and return a token with the permissions of the operator on vanilla Kubernetes."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": REQUESTER_ROLE},
    }
    await env.create({**role, "rules": policy_rules(REQUESTER_RULES)})
    rules = [
        *AVAILABILITY_RULES,
        *EVENT_RULES,
        *raycluster.RULES,
        *raycluster.CERTIFICATE_REQUEST_RULES,
    ]
    return await service_account_token(env, *rules)


@asynccontextmanager
async def running_signer() -> AsyncIterator[tuple[Environment, Object]]:
    """Run the controllers with exactly their permissions, and create a RayCluster whose pods request certificates."""
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        token = await operator_token(env)
        async with run_controllers(env, CONFIG, token=token):
            cluster = await env.create(injected_ray_cluster(SETTINGS))
            await env.wait_until_idle()
            yield env, cluster


@asynccontextmanager
async def client_of(env: Environment, token: str) -> AsyncIterator[Client]:
    async with Transport(local_config(env.plane, token=token)) as transport:
        yield Client(transport, RESTMapper(transport), field_manager="pod")


async def decision(env: Environment, name: str) -> tuple[str, str]:
    """Wait until a request is decided; return the type and the reason of its condition."""

    async def decided() -> tuple[str, str] | None:
        status = (await env.get(CERTIFICATE_SIGNING_REQUEST, name, "")).get("status") or {}
        conditions = status.get("conditions") or []
        if find_condition(conditions, "Approved") and not status.get("certificate"):
            return None
        return (conditions[-1]["type"], conditions[-1]["reason"]) if conditions else None

    found: tuple[str, str] = await eventually(decided, f"a decision about {name}")
    return found


def names_in(certificate: x509.Certificate) -> tuple[set[str], set[str]]:
    """Return the addresses and the host names in a certificate."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(map(str, names.get_values_for_type(x509.IPAddress))), set(
        names.get_values_for_type(x509.DNSName)
    )


async def handshake(server: Path, client: Path, name: str) -> None:
    """Connect the node with the files in ``client`` to that in ``server`` by ``name``; both verify the other."""
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(server / "ca.crt"))
    accepting.load_cert_chain(server / "server.crt", server / "server.key")
    accepting.verify_mode = ssl.CERT_REQUIRED
    connecting = ssl.create_default_context(cafile=str(client / "ca.crt"))
    connecting.load_cert_chain(client / "server.crt", client / "server.key")
    done = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()
        done.set()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=accepting)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=connecting, server_hostname=name
        )
        writer.write(b"ping\n")
        assert await reader.readline() == b"ping\n"
        writer.close()
        await done.wait()


@needs_programs
async def test_pods_get_certificates_for_their_own_names_and_connect(tmp_path: Path) -> None:
    async with running_signer() as (env, cluster):
        nodes = {}
        for kind, ip in (("head", "10.0.0.1"), ("worker", "10.0.0.2")):
            pod = await create_ray_pod(env, cluster, f"rc-{kind}", ip, node_type=kind)
            mounted = [volume["name"] for volume in pod["spec"]["volumes"]]
            assert "ca-key-vol" not in mounted
            nodes[kind] = RayNode(env, cluster, pod, tmp_path)
        results = await asyncio.gather(*(node.run_init_container() for node in nodes.values()))
        assert [code for code, _ in results] == [0, 0], results
        found = {
            kind: x509.load_pem_x509_certificate((node.tls / "server.crt").read_bytes())
            for kind, node in nodes.items()
        }
        loopback = {"127.0.0.1", "::1"}
        service = {
            "rc-head-svc",
            "rc-head-svc.ns",
            "rc-head-svc.ns.svc",
            "rc-head-svc.ns.svc.cluster.local",
        }
        client_host = "rayclient-rc-ns.apps.test"
        assert names_in(found["head"]) == (
            {"10.0.0.1", *loopback},
            {"localhost", client_host, *service},
        )
        assert names_in(found["worker"]) == ({"10.0.0.2", *loopback}, {"localhost"})
        await handshake(nodes["head"].tls, nodes["worker"].tls, "rc-head-svc.ns.svc.cluster.local")
        await handshake(nodes["worker"].tls, nodes["head"].tls, "10.0.0.2")
        with pytest.raises(ssl.SSLCertVerificationError):
            await handshake(nodes["worker"].tls, nodes["head"].tls, "10.0.0.1")
        # Code in the pod has the pod's token, with which it can neither read the key nor see other requests.
        async with client_of(env, await pod_token(env, nodes["worker"].pod)) as client:
            with pytest.raises(Forbidden):
                await client.list(CERTIFICATE_SIGNING_REQUEST)


async def test_requests_of_pods_for_other_names_are_denied_and_reported() -> None:
    async with running_signer() as (env, cluster):
        worker = await create_ray_pod(env, cluster, "rc-worker", "10.0.0.2", node_type="worker")
        own = address("10.0.0.2")
        async with client_of(env, await pod_token(env, worker)) as client:
            await client.create(certificate_request("good", own))
            assert await decision(env, "good") == ("Approved", "PodVerified")
            for name, names in {
                "head": [own, x509.DNSName("rc-head-svc.ns.svc")],
                "other-cluster": [own, x509.DNSName("other-head-svc.ns.svc")],
                "email": [own, x509.RFC822Name("a@b.c")],
            }.items():
                await client.create(certificate_request(name, *names))
                assert await decision(env, name) == ("Denied", "NameNotAllowed")
            await env.wait_for_event(
                "CertificateRequestDenied", "Pod rc-worker", "rc-head-svc.ns.svc"
            )
            await client.create(certificate_request("usages", own, usages=["client auth"]))
            assert await decision(env, "usages") == ("Denied", "UsagesNotAllowed")
            decisions = 5
            while decisions < MAX_DECISIONS:
                await client.create(certificate_request(f"more-{decisions}", own))
                await decision(env, f"more-{decisions}")
                decisions += 1
            await env.wait_until_idle()  # a request is signed after its approval
            env.clear_requests()
            for number in range(20):
                await client.create(certificate_request(f"flood-{number}", own))
            await env.wait_until_idle()
            assert [
                request for request in env.requests() if "certificatesigning" in request[1]
            ] == []
            ignored = await env.get(CERTIFICATE_SIGNING_REQUEST, "flood-19", "")
            assert not (ignored.get("status") or {}).get("conditions")
        # A request for a foreign address is retried for a minute, because the kubelet may report it later.
        other = await create_ray_pod(env, cluster, "rc-worker-2", "10.0.0.3", node_type="worker")
        async with client_of(env, await pod_token(env, other)) as client:
            env.clear_requests()
            for number in range(60):
                await client.create(certificate_request(f"address-{number}", address("10.0.0.1")))
            await env.wait_until_idle()
            assert (
                0 < len([request for request in env.requests() if request == ("get", "pods")]) < 40
            )


async def test_only_nodes_of_a_raycluster_get_certificates() -> None:
    async with running_signer() as (env, cluster):
        own = address("10.0.0.9")
        for name, changes in {
            "no-owner": {"ownerReferences": []},
            "no-label": {"labels": {}},
        }.items():
            pod = await create_ray_pod(env, cluster, name, "10.0.0.9", node_type="head", **changes)
            async with client_of(env, await pod_token(env, pod)) as client:
                await client.create(certificate_request(name, own))
            assert await decision(env, name) == ("Denied", "PodOfNoRayCluster")
        await env.create(certificate_request("no-pod", own))
        assert await decision(env, "no-pod") == ("Denied", "RequesterIsNotAPod")
        await env.create_namespace("other")
        elsewhere = {**cluster, "metadata": {**cluster["metadata"], "namespace": "other"}}
        stranger = await create_ray_pod(
            env, elsewhere, "stranger", "10.0.0.9", node_type="head", ownerReferences=[]
        )
        async with client_of(env, await pod_token(env, stranger)) as client:
            with pytest.raises(Forbidden):  # the namespace has no RayCluster
                await client.create(certificate_request("stranger", own))
        # The kubelet reports the address of a pod a moment after its containers were started.
        late = await create_ray_pod(env, cluster, "rc-worker", "", node_type="worker")
        async with client_of(env, await pod_token(env, late)) as client:
            await client.create(certificate_request("early", address("10.0.0.7")))
        await env.wait_until_idle()
        assert not (
            (await env.get(CERTIFICATE_SIGNING_REQUEST, "early", "")).get("status") or {}
        ).get("conditions")
        await env.patch(
            late,
            {"status": {"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}},
            subresource="status",
        )
        assert await decision(env, "early") == ("Approved", "PodVerified")


async def test_request_is_signed_after_a_crash_between_approval_and_signature() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        cluster = await env.create(injected_ray_cluster(SETTINGS))
        await operator_token(env)
        async with run_controllers(env, CONFIG):
            pass
        pod = await create_ray_pod(env, cluster, "rc-worker", "10.0.0.2", node_type="worker")
        async with client_of(env, await pod_token(env, pod)) as client:
            await client.create(certificate_request("crash", address("10.0.0.2")))
        assert await run_until_crash(env, CONFIG, after_writes=1)
        status = (await env.get(CERTIFICATE_SIGNING_REQUEST, "crash", ""))["status"]
        assert find_condition(status["conditions"], "Approved")
        assert not status.get("certificate")
        # What another client approved is checked as well.
        other = await env.create(certificate_request("other", address("10.0.0.2")))
        conditions = [{"type": "Approved", "status": "True", "reason": "ByAdministrator"}]
        await env.patch(other, {"status": {"conditions": conditions}}, subresource="approval")
        async with run_controllers(env, CONFIG):
            await env.wait_until_idle()
            status = (await env.get(CERTIFICATE_SIGNING_REQUEST, "crash", ""))["status"]
            assert status["certificate"]
            assert len(status["conditions"]) == 1
            status = (await env.get(CERTIFICATE_SIGNING_REQUEST, "other", ""))["status"]
            assert not status.get("certificate")
            assert find_condition(status["conditions"], "Failed")["reason"] == "RequesterIsNotAPod"
        async with run_controllers(env, CONFIG):
            assert [request for request in env.requests() if request[0] != "discover"] == []
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.wait_for_event("CertificateRequestsDisabled", "kuberay.ca.issuer")


async def test_binding_follows_the_rayclusters_of_a_namespace() -> None:
    async with running_signer() as (env, cluster):
        binding = await env.get(CLUSTER_ROLE_BINDING, BINDING.name, "")
        assert binding["roleRef"]["name"] == REQUESTER_ROLE
        assert [subject["name"] for subject in binding["subjects"]] == ["system:serviceaccounts:ns"]
        await env.patch(binding, {"subjects": []})

        async def is_restored() -> bool:
            return bool((await env.get(CLUSTER_ROLE_BINDING, BINDING.name, "")).get("subjects"))

        await eventually(is_restored, "the subjects are restored")
        await env.delete(cluster)

        async def is_deleted() -> bool:
            return await env.find(CLUSTER_ROLE_BINDING, BINDING.name, "") is None

        await eventually(is_deleted, "the binding is deleted")
