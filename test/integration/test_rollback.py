"""Tests of the switch back to the Go operator: it finds this operator's objects as it expects them.

The Go operator does not run here; its requests come from the recordings. It force-applies the fields that it owns as
field manager ``codeflare-raycluster-controller``, and updates the RayCluster to set its finalizer. The tests send these
requests to objects that this operator created; afterwards they must be the same objects with the recorded content.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.verification import PolicyBuilder, Store

from cfo.api.raycluster.names import (
    FIELD_MANAGER,
    FINALIZER,
    FINALIZER_MANAGER,
    RAY_CLUSTER,
    names_of,
)
from cfo.config.document import default_document
from cfo.config.endpoints import WebhookConfiguration
from cfo.manifests.names import DEFAULT_NAMESPACE
from cfo.manifests.overlays import render
from cfo.operator import WEBHOOK_SECRET_NAME, webhook_configurations, webhook_options
from cfo.runtime.objects.kinds import CLUSTER_ROLE_BINDING, SECRET
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    gvk_of,
    key_of,
    name_of,
    owner_references_of,
    uid_of,
)
from cfo.runtime.pki.rotation import StoredCertificates, ensure_certificates
from cfo.runtime.webhook.options import RotatedCertificates
from envtest.formats.certificate_authority import CertificateAuthority
from test.support.go_operator import (
    find_ray_cluster,
    go_apply_request,
    is_applied_by_go_operator,
    recorded_lifecycles,
    recorded_scenarios,
)
from test.support.installation import kubectl
from test.support.manifests import dump_all
from test.support.raycluster_environment import (
    Environment,
    eventually,
    kuberay_config,
    run_controllers,
    start_environment,
)
from test.support.raycluster_recordings import (
    PARTLY_RECONCILED,
    TESTED_CONFIGURATIONS,
    comparable_part,
    managed_fields,
    recorded_crds,
    without_server_fields,
)
from test.support.recordings import RAYCLUSTER_RECORDINGS, load_raycluster
from test.support.sweeps import sampled

needs_recordings = pytest.mark.skipif(
    not RAYCLUSTER_RECORDINGS.is_dir(), reason="no recordings next to the repository"
)


async def reconcile(env: Environment, cluster: Object, recorded: list[Object]) -> Object:
    """Send the requests of the Go operator's reconcile of a cluster; return the cluster."""
    finalizers = cluster["metadata"].setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
        cluster = await env.client.with_field_manager(FINALIZER_MANAGER).update(cluster)
    operator = env.client.with_field_manager(FIELD_MANAGER)
    for obj in recorded:
        if is_applied_by_go_operator(obj):
            request = go_apply_request(obj, cluster)
            if set(request.get("data", ())) == {"ca.crt", "ca.key"}:
                # it creates a CA only if there is no Secret, otherwise it applies the data that it read
                found = await env.get(SECRET, name_of(request), request["metadata"]["namespace"])
                request["data"] = {key: found["data"][key] for key in request["data"]}
            await operator.apply(request)
    return cluster


async def finalize(env: Environment, key: NamespacedName, binding: str) -> None:
    """Delete a cluster, and send the Go operator's requests for it: delete its binding, then remove the finalizer."""
    await env.client.delete(RAY_CLUSTER, key)
    cluster = await env.get(RAY_CLUSTER, key.name, key.namespace)
    if await env.find(CLUSTER_ROLE_BINDING, binding, "") is not None:
        await env.client.delete(CLUSTER_ROLE_BINDING, NamespacedName("", binding))
    cluster["metadata"]["finalizers"].remove(FINALIZER)
    await env.client.with_field_manager(FINALIZER_MANAGER).update(cluster)


@needs_recordings
@pytest.mark.sweep
@pytest.mark.parametrize("configuration", TESTED_CONFIGURATIONS)
async def test_go_operator_adopts_objects_of_this_operator(configuration: str) -> None:
    settings: dict[str, Any] = load_raycluster(f"{configuration}/kuberay-sample")["config"]
    openshift: bool = settings["openshift"]
    scenarios = sampled(recorded_scenarios(configuration))
    recordings = {
        case: found[0][1] for case, found in recorded_lifecycles(configuration, scenarios)
    }
    async with start_environment(*recorded_crds(openshift=openshift)) as env:
        for objects in recordings.values():
            await env.create_namespace(_namespace(objects))
            await env.create(_without_finalizers(find_ray_cluster(objects)))
        async with run_controllers(env, kuberay_config(**settings["kuberay"])):
            await env.wait_until_idle()
        await _switch_back(env, recordings, openshift=openshift)
        before = await env.all_children(openshift=openshift)
        async with run_controllers(
            env, kuberay_config(**settings["kuberay"])
        ):  # to this operator again
            await env.wait_until_idle()
            assert {verb for verb, _ in env.requests()} <= {
                "discover",
                "get",
                "patch",
                "apply",
                "watch",
                "list",
            }
        after = await env.all_children(openshift=openshift)
        for objects in recordings.values():
            namespace, name = _namespace(objects), name_of(find_ray_cluster(objects))
            assert _uids(after[namespace]) == _uids(before[namespace])
            await reconcile(
                env, await env.get(RAY_CLUSTER, name, namespace), objects
            )  # and back again
        collects = await env.collects_garbage()
        for objects in recordings.values():
            cluster = find_ray_cluster(objects)
            await finalize(env, key_of(cluster), names_of(cluster).cluster_role_binding)

        async def all_deleted() -> bool:
            for namespace, remaining in (await env.all_children(openshift=openshift)).items():
                kept = [key for key in remaining if collects or key[0] == "ClusterRoleBinding"]
                assert not kept, f"{namespace}: {kept}"
            return True

        await eventually(all_deleted, "all children are deleted")


def _uids(children: dict[tuple[str, str], Object]) -> dict[tuple[str, str], str]:
    return {key: uid_of(obj) for key, obj in children.items()}


def _namespace(recorded: list[Object]) -> str:
    return key_of(find_ray_cluster(recorded)).namespace


def _without_finalizers(cluster: Object) -> Object:
    """Return a recorded cluster in the state before any operator changed it."""
    cluster = without_server_fields(cluster)
    cluster["metadata"].pop("finalizers", None)
    return cluster


async def _switch_back(
    env: Environment, recordings: dict[str, list[Object]], *, openshift: bool
) -> None:
    """Reconcile all clusters as the Go operator does; assert that it creates, deletes and recreates nothing."""
    before = await env.all_children(openshift=openshift)
    clusters = {}
    for case, recorded in recordings.items():
        key = key_of(find_ray_cluster(recorded))
        clusters[case] = await reconcile(
            env, await env.get(RAY_CLUSTER, key.name, key.namespace), recorded
        )
    after = await env.all_children(openshift=openshift)
    for case, recorded in recordings.items():
        namespace = _namespace(recorded)
        _assert_adopted(case, recorded, clusters[case], before[namespace], after[namespace])
        cluster = await env.get(RAY_CLUSTER, name_of(clusters[case]), namespace)
        assert cluster["spec"] == find_ray_cluster(recorded)["spec"], case


def _assert_adopted(
    case: str,
    recorded: list[Object],
    cluster: Object,
    before: dict[tuple[str, str], Object],
    after: dict[tuple[str, str], Object],
) -> None:
    assert set(after) == set(before), f"{case}: other objects than before"
    if case not in PARTLY_RECONCILED:
        assert set(after) == {
            (obj["kind"], name_of(obj)) for obj in recorded if is_applied_by_go_operator(obj)
        }, case
    for child, obj in after.items():
        assert uid_of(obj) == uid_of(before[child]), f"{case}: {child} was recreated"
        owners = owner_references_of(obj)
        assert owners == owner_references_of(before[child]), f"{case}: {child} has other owners"
        if child[0] != "ClusterRoleBinding":
            assert [owner["uid"] for owner in owners] == [uid_of(cluster)], f"{case}: {child}"
    for obj in recorded:
        if is_applied_by_go_operator(obj) and len(managed_fields(obj)) == 1:
            found = after[obj["kind"], name_of(obj)]
            assert comparable_part(found) == comparable_part(obj), (
                f"{case}: {name_of(obj)} differs from the recording"
            )
            if "ca.key" in found.get("data", ()):
                assert found["data"] == before["Secret", name_of(obj)]["data"], (
                    f"{case}: another CA"
                )


def test_go_operator_accepts_webhook_certificate() -> None:
    """The Secret meets the requirements of the Go operator's certificate rotator.

    Otherwise it would recreate the certificates, and webhook calls would fail meanwhile. It requires (see
    github.com/open-policy-agent/cert-controller): keys as PKCS #1; a CA with the alternative name ``codeflare``; a
    serving certificate for the Service; both valid for 90 more days. Of several CAs it uses the first.
    """
    options = webhook_options(WebhookConfiguration(), "openshift-operators")
    assert isinstance(options.certificates, RotatedCertificates)
    now = datetime.now(UTC)
    names = options.service.dns_names
    first, _ = ensure_certificates(
        StoredCertificates(), options.certificates, names, now=now - timedelta(days=1)
    )
    stored = StoredCertificates(former_cas=(first.ca.certificate,))
    second, _ = ensure_certificates(stored, options.certificates, names, now=now)
    for certificates in (first, second):
        data = {name: b64decode(value) for name, value in certificates.data().items()}
        assert set(data) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
        for name in ("ca.key", "tls.key"):
            assert data[name].startswith(b"-----BEGIN RSA PRIVATE KEY-----"), name
        ca_certificate, leaf = (
            x509.load_pem_x509_certificate(data["ca.crt"]),
            x509.load_pem_x509_certificate(data["tls.crt"]),
        )
        key = serialization.load_pem_private_key(data["ca.key"], None)
        assert isinstance(key, rsa.RSAPrivateKey)
        assert key.public_key() == ca_certificate.public_key(), (
            "the first CA in the bundle must match the key"
        )
        names = ca_certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["codeflare"]
        host = x509.DNSName("codeflare-operator-webhook-service.openshift-operators.svc")
        policy = PolicyBuilder().store(Store([ca_certificate])).time(now + timedelta(days=90))
        verifier = policy.build_server_verifier(host)
        verifier.verify(leaf, [])


SERVED_BY_GO = {
    "mappwrapper.kb.io": "/mutate-workload-codeflare-dev-v1beta2-appwrapper",
    "mraycluster.ray.openshift.ai": "/mutate-ray-io-v1-raycluster",
    "vappwrapper.kb.io": "/validate-workload-codeflare-dev-v1beta2-appwrapper",
    "vraycluster.ray.openshift.ai": "/validate-ray-io-v1-raycluster",
}
"""The Go operator's webhooks and paths. A webhook that it does not serve would deny all requests: all fail closed."""

NOT_SERVED_BY_GO = {
    f"{name}.{group}"
    for name in ("vinferencestack", "vinferencestack-others")
    for group in ("doublewordai.co", "models.takeoff.co")
}
"""Webhooks of kinds that the Go operator does not have; docs/migration.md describes how they are removed."""


FLUX_WEBHOOKS = {"vfluxjob.kb.io", "vfluxsetup.kb.io", "vminicluster.kb.io"}
"""Webhooks of kinds that the Go operator does not have; its manifests replace the configurations without them."""


def test_go_operator_serves_every_configured_webhook() -> None:
    configurations = webhook_configurations("openshift-operators")
    assert {name_of(obj) for obj in configurations} == {
        f"codeflare-operator-{kind}-webhook-configuration" for kind in ("mutating", "validating")
    }
    services = [
        (hook["name"], hook["clientConfig"]["service"])
        for obj in configurations
        for hook in obj["webhooks"]
    ]
    paths = {name: service["path"] for name, service in services if name not in FLUX_WEBHOOKS}
    assert {
        name: path for name, path in paths.items() if name not in NOT_SERVED_BY_GO
    } == SERVED_BY_GO
    assert paths.keys() >= NOT_SERVED_BY_GO
    assert {(service["name"], service.get("port", 443)) for _, service in services} == {
        ("codeflare-operator-webhook-service", 443)
    }


def go_manifests() -> list[Object]:
    """Return the relevant part of the Go operator's manifests: Deployment, empty Secret, webhook configuration."""
    labels = {
        "app.kubernetes.io/name": "codeflare-operator",
        "app.kubernetes.io/part-of": "codeflare",
    }
    namespace = {"namespace": DEFAULT_NAMESPACE}
    certificates = "/tmp/k8s-webhook-server/serving-certs"
    container = {
        "name": "manager",
        "image": "go-operator",
        "command": ["/manager"],
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
        ],
        "ports": [
            {"containerPort": 8080, "protocol": "TCP", "name": "metrics"},
            {"containerPort": 9443, "protocol": "TCP", "name": "webhook-server"},
        ],
        "resources": {
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "1", "memory": "1Gi"},
        },
        "volumeMounts": [{"name": "cert", "mountPath": certificates, "readOnly": True}],
    }
    pod = {
        "serviceAccountName": "codeflare-operator-controller-manager",
        "terminationGracePeriodSeconds": 10,
        "securityContext": {"runAsNonRoot": True},
        "containers": [container],
        "volumes": [
            {"name": "cert", "secret": {"defaultMode": 420, "secretName": WEBHOOK_SECRET_NAME}}
        ],
    }
    hook = {
        "name": "mraycluster.ray.openshift.ai",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "name": "codeflare-operator-webhook-service",
                **namespace,
                "path": SERVED_BY_GO["mraycluster.ray.openshift.ai"],
            }
        },
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "rules": [
            {
                "apiGroups": ["ray.io"],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["rayclusters"],
            }
        ],
    }
    mutating = "codeflare-operator-mutating-webhook-configuration"
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": WEBHOOK_SECRET_NAME, **namespace},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "codeflare-operator-manager", **namespace, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": mutating},
            "webhooks": [hook],
        },
    ]


@pytest.mark.parametrize("apply", [["--server-side"], []], ids=["server-side", "client-side"])
async def test_manifests_of_both_operators_replace_each_other(
    tmp_path: Path, apply: list[str]
) -> None:
    """Apply the Go operator's manifests (client-side or server-side), then this operator's, then the former again."""
    secret, deployment, hooks = go_manifests()
    go_yaml = dump_all(go_manifests())
    async with start_environment() as env:
        await env.create_namespace(DEFAULT_NAMESPACE)
        code, output = await kubectl(env, tmp_path, "apply", *apply, "-f", "-", stdin=go_yaml)
        assert code == 0, output
        uids = {name_of(obj): uid_of(await _get(env, obj)) for obj in go_manifests()}
        server_side = ("--server-side", "--force-conflicts")
        code, output = await kubectl(
            env, tmp_path, "apply", *server_side, "-f", "-", stdin=dump_all(render())
        )
        assert code == 0, output
        (own,) = [obj for obj in render() if obj["kind"] == "Deployment"]
        assert _pod(await _get(env, deployment)) == _pod(own), "fields of the Go operator are left"

        data = {"ca.crt": "eA==", "ca.key": "eA==", "tls.crt": "eA==", "tls.key": "eA=="}
        await env.patch(secret, {"data": data})
        stored = await _get(env, hooks)
        for hook in stored["webhooks"]:
            hook["clientConfig"]["caBundle"] = CA_BUNDLE
        await env.client.with_field_manager("codeflare-operator").update(stored)

        code, output = await kubectl(env, tmp_path, "apply", *server_side, "-f", "-", stdin=go_yaml)
        assert code == 0, output
        assert _pod(await _get(env, deployment)) == _pod(deployment), (
            "fields of this operator are left"
        )
        assert (await _get(env, deployment))["spec"]["replicas"] == 1
        assert (await _get(env, secret))["data"] == data
        ca_bundles = {
            hook["name"]: hook["clientConfig"].get("caBundle")
            for hook in (await _get(env, hooks))["webhooks"]
        }
        assert ca_bundles["mraycluster.ray.openshift.ai"] == CA_BUNDLE
        assert {name_of(obj): uid_of(await _get(env, obj)) for obj in go_manifests()} == uids


CA_BUNDLE = b64encode(CertificateAuthority(name="any").pem).decode()


async def _get(env: Environment, obj: Object) -> Object:
    return await env.get(gvk_of(obj), name_of(obj), key_of(obj).namespace)


def _pod(deployment: Object) -> Any:
    """Return the fields of a Deployment's pods that manifests set and API servers do not default."""
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return (
        {mount["mountPath"] for mount in container["volumeMounts"]},
        {volume["name"] for volume in spec["volumes"]},
        container["resources"],
        container["command"],
        {port["name"] for port in container["ports"]},
        container["image"],
        container.get("securityContext"),
        spec["terminationGracePeriodSeconds"],
        spec.get("topologySpreadConstraints"),
    )


_STRING, _BOOLEAN = (str,), (bool, type(None))
READ_BY_GO: dict[str, tuple[type, ...]] = {
    "appwrapper.enabled": _BOOLEAN,
    "appwrapper.Config": (),
    "clientConnection": (),
    "health.bindAddress": _STRING,
    "health.livenessEndpointName": _STRING,
    "health.readinessEndpointName": _STRING,
    "kuberay.ingressDomain": _STRING,
    "kuberay.mTLSEnabled": _BOOLEAN,
    "kuberay.rayDashboardOAuthEnabled": _BOOLEAN,
    "leaderElection.leaderElect": _BOOLEAN,
    "leaderElection.leaseDuration": _STRING,
    "leaderElection.renewDeadline": _STRING,
    "leaderElection.resourceLock": _STRING,
    "leaderElection.resourceName": _STRING,
    "leaderElection.resourceNamespace": _STRING,
    "leaderElection.retryPeriod": _STRING,
    "metrics.bindAddress": _STRING,
}
"""The keys of the Go operator's configuration, and the types that it can read there.

A key without types must not be set, because it would replace the Go operator's default. It ignores unknown keys.
"""


def test_go_operator_can_read_default_configuration() -> None:
    document: dict[str, Any] = yaml.safe_load(default_document())
    for path, types in READ_BY_GO.items():
        section, _, name = path.partition(".")
        values = document.get(section, {})
        present = name in values if name else section in document
        assert not present or isinstance(values[name], types), path
        assert present or path in {
            "appwrapper.Config",
            "clientConnection",
            "leaderElection.leaderElect",
        }, path
    for section in ("kuberay", "health", "metrics", "leaderElection", "appwrapper"):
        assert isinstance(document[section], dict), "the Go operator panics if a section is null"
    assert "config" not in map(str.lower, document["appwrapper"]), (
        "the Go operator ignores the case of keys"
    )
