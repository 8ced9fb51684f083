"""Back to the Go operator: what this one made is what that one expects to find.

There is no Go operator here. What it sends, the recordings tell: the fields that it owns are what it applied, forced,
as ``codeflare-raycluster-controller``; the RayCluster with its finalizer it updates. That is sent to objects which this
operator made; afterwards they must be the same objects, with the content that was recorded.
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

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import FIELD_MANAGER, names_of
from cfo.config import default_document
from cfo.config.model import WebhookConfiguration
from cfo.controllers.raycluster.oauth import FINALIZER, FINALIZER_MANAGER
from cfo.manifests import render
from cfo.manifests.names import DEFAULT_NAMESPACE
from cfo.operator import WEBHOOK_SECRET_NAME, webhook_configurations, webhook_options
from cfo.runtime.kinds import CLUSTER_ROLE_BINDING, SECRET
from cfo.runtime.objects import NamespacedName, Object, gvk_of, key_of, name_of, owner_references_of, uid_of
from cfo.runtime.webhook.certificates.certificate_authority import Stored, advance
from cfo.runtime.webhook.options import RotatedCertificates
from envtest.certificates import Authority
from test.support.go_operator import find_ray_cluster, go_apply_request, is_applied_by_go_operator, recorded_lifecycles
from test.support.installation import kubectl
from test.support.raycluster_environment import (
    Environment,
    eventually,
    kuberay_config,
    run_controllers,
    start_environment,
)
from test.support.raycluster_recordings import (
    CONFIGURATIONS,
    PARTLY_RECONCILED,
    comparable_part,
    managed_fields,
    recorded_crds,
    without_server_fields,
)
from test.support.recordings import RAYCLUSTER_RECORDINGS, load_raycluster

recorded_only = pytest.mark.skipif(not RAYCLUSTER_RECORDINGS.is_dir(), reason="no recordings beside the repository")


async def reconcile(here: Environment, cluster: Object, recorded: list[Object]) -> Object:
    """Sends what the Go operator sends for a cluster; returns the cluster."""
    finalizers = cluster["metadata"].setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
        cluster = await here.client.with_field_manager(FINALIZER_MANAGER).update(cluster)
    operator = here.client.with_field_manager(FIELD_MANAGER)
    for obj in recorded:
        if is_applied_by_go_operator(obj):
            sent = go_apply_request(obj, cluster)
            if set(sent.get("data", ())) == {"ca.crt", "ca.key"}:
                # it looks first: only where there is no Secret it makes an authority, else it sends what it read
                found = await here.get(SECRET, name_of(sent), sent["metadata"]["namespace"])
                sent["data"] = {key: found["data"][key] for key in sent["data"]}
            await operator.apply(sent)
    return cluster


async def release(here: Environment, key: NamespacedName, binding: str) -> None:
    """What it does with a cluster that is deleted: the binding of this name goes, then the finalizer."""
    await here.client.delete(RAY_CLUSTER, key)
    cluster = await here.get(RAY_CLUSTER, key.name, key.namespace)
    if await here.find(CLUSTER_ROLE_BINDING, binding, "") is not None:
        await here.client.delete(CLUSTER_ROLE_BINDING, NamespacedName("", binding))
    cluster["metadata"]["finalizers"].remove(FINALIZER)
    await here.client.with_field_manager(FINALIZER_MANAGER).update(cluster)


@recorded_only
@pytest.mark.timeout(120)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
async def test_the_go_operator_finds_what_it_expects(configuration: str) -> None:
    settings: dict[str, Any] = load_raycluster(f"{configuration}/kuberay-sample")["config"]
    openshift: bool = settings["openshift"]
    recordings = {case: found[0][1] for case, found in recorded_lifecycles(configuration)}
    async with start_environment(*recorded_crds(openshift=openshift)) as here:
        for objects in recordings.values():
            await here.create_namespace(_namespace(objects))
            await here.create(_fresh(find_ray_cluster(objects)))
        async with run_controllers(here, kuberay_config(**settings["kuberay"])):
            await here.wait_until_idle()
        for case, objects in recordings.items():
            await _taken_back(here, case, objects, openshift=openshift)
        there = [await here.children(_namespace(objects), openshift=openshift) for objects in recordings.values()]
        async with run_controllers(here, kuberay_config(**settings["kuberay"])):  # and forth
            await here.wait_until_idle()
            assert {verb for verb, _ in here.requests()} <= {"discover", "get", "patch", "apply", "watch", "list"}
        for objects, before in zip(recordings.values(), there, strict=True):
            after = await here.children(_namespace(objects), openshift=openshift)
            assert {key: uid_of(obj) for key, obj in after.items()} == {key: uid_of(obj) for key, obj in before.items()}
            cluster = find_ray_cluster(objects)
            await reconcile(
                here, await here.get(RAY_CLUSTER, name_of(cluster), _namespace(objects)), objects
            )  # and back
        collects = await here.collects_garbage()
        for objects in recordings.values():
            key = key_of(find_ray_cluster(objects))
            await release(here, key, names_of(find_ray_cluster(objects)).cluster_role_binding)

            async def look(namespace: str = key.namespace) -> bool:
                left = await here.children(namespace, openshift=openshift)
                return not [each for each in left if collects or each[0] == "ClusterRoleBinding"]

            await eventually(look, f"nothing left of {key}")


def _namespace(recorded: list[Object]) -> str:
    return key_of(find_ray_cluster(recorded)).namespace


def _fresh(cluster: Object) -> Object:
    """The cluster as it was before any operator saw it."""
    fresh = without_server_fields(cluster)
    fresh["metadata"].pop("finalizers", None)
    return fresh


async def _taken_back(here: Environment, case: str, recorded: list[Object], *, openshift: bool) -> None:
    key = key_of(find_ray_cluster(recorded))
    before = await here.children(key.namespace, openshift=openshift)
    cluster = await reconcile(here, await here.get(RAY_CLUSTER, key.name, key.namespace), recorded)
    after = await here.children(key.namespace, openshift=openshift)
    assert set(after) == set(before), f"{case}: nothing new, nothing lost"
    if case not in PARTLY_RECONCILED:
        assert set(after) == {(obj["kind"], name_of(obj)) for obj in recorded if is_applied_by_go_operator(obj)}, case
    for each, obj in after.items():
        assert uid_of(obj) == uid_of(before[each]), f"{case}: {each} was made anew"
        owners = owner_references_of(obj)
        assert owners == owner_references_of(before[each]), f"{case}: {each} has other owners"
        if each[0] != "ClusterRoleBinding":
            assert [owner["uid"] for owner in owners] == [uid_of(cluster)], f"{case}: {each}"
    for obj in recorded:
        if is_applied_by_go_operator(obj) and len(managed_fields(obj)) == 1:
            found = after[obj["kind"], name_of(obj)]
            assert comparable_part(found) == comparable_part(obj), f"{case}: {name_of(obj)} is not what was recorded"
            if "ca.key" in found.get("data", ()):
                assert found["data"] == before["Secret", name_of(obj)]["data"], f"{case}: another authority"
    spec = (await here.get(RAY_CLUSTER, key.name, key.namespace))["spec"]
    assert spec == find_ray_cluster(recorded)["spec"], case


def test_the_go_operator_keeps_the_certificate_of_the_webhooks() -> None:
    """What its certificate rotator asks of the Secret; what fails, it makes anew, and calls fail meanwhile.

    (github.com/open-policy-agent/cert-controller: keys as PKCS #1, an authority that is called ``codeflare`` in its
    alternative names, a serving certificate for the Service, both good for 90 more days; the first of several
    authorities counts.)
    """
    options = webhook_options(WebhookConfiguration(), "openshift-operators")
    assert isinstance(options.certificates, RotatedCertificates)
    now = datetime.now(UTC)
    first, _ = advance(Stored(), options.certificates, options.service.dns_names, now=now - timedelta(days=1))
    stored = Stored(former=(first.authority.certificate,))
    for material in (first, advance(stored, options.certificates, options.service.dns_names, now=now)[0]):
        data = {name: b64decode(value) for name, value in material.data().items()}
        assert set(data) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
        for name in ("ca.key", "tls.key"):
            assert data[name].startswith(b"-----BEGIN RSA PRIVATE KEY-----"), name
        authority, leaf = (
            x509.load_pem_x509_certificate(data["ca.crt"]),
            x509.load_pem_x509_certificate(data["tls.crt"]),
        )
        key = serialization.load_pem_private_key(data["ca.key"], None)
        assert isinstance(key, rsa.RSAPrivateKey)
        assert key.public_key() == authority.public_key(), "the first authority is the one of the key"
        names = authority.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["codeflare"]
        host = x509.DNSName("codeflare-operator-webhook-service.openshift-operators.svc")
        verifier = PolicyBuilder().store(Store([authority])).time(now + timedelta(days=90)).build_server_verifier(host)
        verifier.verify(leaf, [])


SERVED_BY_GO = {
    "mappwrapper.kb.io": "/mutate-workload-codeflare-dev-v1beta2-appwrapper",
    "mraycluster.ray.openshift.ai": "/mutate-ray-io-v1-raycluster",
    "vappwrapper.kb.io": "/validate-workload-codeflare-dev-v1beta2-appwrapper",
    "vraycluster.ray.openshift.ai": "/validate-ray-io-v1-raycluster",
}
"""Its webhooks. One that it does not serve would refuse everything, for all of them fail closed."""


def test_the_go_operator_serves_every_webhook_that_is_announced() -> None:
    configurations = webhook_configurations("openshift-operators")
    assert {name_of(obj) for obj in configurations} == {
        f"codeflare-operator-{kind}-webhook-configuration" for kind in ("mutating", "validating")
    }
    services = [(hook["name"], hook["clientConfig"]["service"]) for obj in configurations for hook in obj["webhooks"]]
    assert {name: service["path"] for name, service in services} == SERVED_BY_GO
    assert {(service["name"], service.get("port", 443)) for _, service in services} == {
        ("codeflare-operator-webhook-service", 443)
    }


def go_manifests() -> list[Object]:
    """What matters here of the Go operator's manifests: the Deployment, the Secret (empty), a webhook configuration."""
    labels = {"app.kubernetes.io/name": "codeflare-operator", "app.kubernetes.io/part-of": "codeflare"}
    namespace = {"namespace": DEFAULT_NAMESPACE}
    certificates = "/tmp/k8s-webhook-server/serving-certs"
    container = {
        "name": "manager",
        "image": "go-operator",
        "command": ["/manager"],
        "env": [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [
            {"containerPort": 8080, "protocol": "TCP", "name": "metrics"},
            {"containerPort": 9443, "protocol": "TCP", "name": "webhook-server"},
        ],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        "volumeMounts": [{"name": "cert", "mountPath": certificates, "readOnly": True}],
    }
    pod = {
        "serviceAccountName": "codeflare-operator-controller-manager",
        "terminationGracePeriodSeconds": 10,
        "securityContext": {"runAsNonRoot": True},
        "containers": [container],
        "volumes": [{"name": "cert", "secret": {"defaultMode": 420, "secretName": WEBHOOK_SECRET_NAME}}],
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
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": WEBHOOK_SECRET_NAME, **namespace}},
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
async def test_the_manifests_follow_each_other(tmp_path: Path, apply: list[str]) -> None:
    """First those of the Go operator, by either way to apply; then ours; then those of the Go operator again."""
    secret, deployment, hooks = go_manifests()
    theirs = yaml.safe_dump_all(go_manifests())
    async with start_environment() as here:
        await here.create_namespace(DEFAULT_NAMESPACE)
        code, said = await kubectl(here, tmp_path, "apply", *apply, "-f", "-", stdin=theirs)
        assert code == 0, said
        uids = {name_of(obj): uid_of(await _stored(here, obj)) for obj in go_manifests()}
        ours = ("--server-side", "--force-conflicts")
        code, said = await kubectl(here, tmp_path, "apply", *ours, "-f", "-", stdin=yaml.safe_dump_all(render()))
        assert code == 0, said
        (mine,) = [obj for obj in render() if obj["kind"] == "Deployment"]
        assert _pod(await _stored(here, deployment)) == _pod(mine), "nothing of theirs is left"

        data = {"ca.crt": "eA==", "ca.key": "eA==", "tls.crt": "eA==", "tls.key": "eA=="}
        await here.patch(secret, {"data": data})
        stored = await _stored(here, hooks)
        for hook in stored["webhooks"]:
            hook["clientConfig"]["caBundle"] = CA_BUNDLE
        await here.client.with_field_manager("codeflare-operator").update(stored)

        back = ("--server-side", "--force-conflicts")
        code, said = await kubectl(here, tmp_path, "apply", *back, "-f", "-", stdin=theirs)
        assert code == 0, said
        assert _pod(await _stored(here, deployment)) == _pod(deployment), "nothing of ours is left"
        assert (await _stored(here, deployment))["spec"]["replicas"] == 1
        assert (await _stored(here, secret))["data"] == data
        kept = {hook["name"]: hook["clientConfig"].get("caBundle") for hook in (await _stored(here, hooks))["webhooks"]}
        assert kept["mraycluster.ray.openshift.ai"] == CA_BUNDLE
        assert {name_of(obj): uid_of(await _stored(here, obj)) for obj in go_manifests()} == uids


CA_BUNDLE = b64encode(Authority(name="any").pem).decode()


async def _stored(here: Environment, obj: Object) -> Object:
    return await here.get(gvk_of(obj), name_of(obj), key_of(obj).namespace)


def _pod(deployment: Object) -> Any:
    """What a Deployment says of its pods, of that what a server does not fill in."""
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
"""The keys of its configuration, and the types that it can read there; no type: must not be there, for the default
would go. What it does not know it passes over."""


def test_the_go_operator_can_read_the_configuration_that_is_made_here() -> None:
    document: dict[str, Any] = yaml.safe_load(default_document())
    for path, types in READ_BY_GO.items():
        section, _, name = path.partition(".")
        there = document.get(section, {})
        present = name in there if name else section in document
        assert not present or isinstance(there[name], types), path
        assert present or path in {"appwrapper.Config", "clientConnection", "leaderElection.leaderElect"}, path
    for section in ("kuberay", "health", "metrics", "leaderElection", "appwrapper"):
        assert isinstance(document[section], dict), "null there is a panic"
    assert "config" not in map(str.lower, document["appwrapper"]), "keys match in any case"
