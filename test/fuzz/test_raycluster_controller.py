"""The objects of a RayCluster: whatever an API server stores, they can be written, and stay with their cluster."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from cfo.api.gateway import TLS_ROUTES
from cfo.api.raycluster.cluster import has_injected_tls
from cfo.api.raycluster.enforcement import enforce
from cfo.api.raycluster.facts import KUBERAY_FEATURES, Concern, RayClusterFacts
from cfo.api.raycluster.names import client_host, dashboard_host, names_of
from cfo.api.raycluster.ports import PROXY_PORT, ports_of
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.network import GatewayConfiguration
from cfo.controllers.raycluster import ca, ingress_resources, policies, resources
from cfo.controllers.raycluster.dashboard_access import Authentication, Backend, dashboard_backend
from cfo.runtime.objects import merged
from cfo.runtime.objects.unstructured import Object
from test.fuzz.mutations import mutated
from test.fuzz.profiles import fuzz
from test.fuzz.seeds import Corpus
from test.fuzz.stored_objects import as_stored

CLUSTERS = mutated(Corpus(kind="RayCluster"), 6)
NAMES = st.sampled_from(["a", "prod", "0", "a-b", "a.b.c", "x" * 63, "y" * 253, "x.y" * 20])
CONFIG = KubeRayConfiguration()
NGINX = ingress_resources.choose_ingress_class(None, ingress_resources.NGINX_CLASS, None)
RESTRICTED = KubeRayConfiguration.from_document({"networkPolicy": {"egress": {"restrict": True}}})
GATEWAY = GatewayConfiguration(
    name="gw",
    namespace="gateways",
    dashboard_listener="https",
    client_listener="ray",
    dashboard_host="ray.apps.test",
)
DOMAIN = "apps.test"
SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def backend(facts: RayClusterFacts, authentication: Authentication) -> Backend:
    found = dashboard_backend(facts, authentication)
    assert found is not None
    return found


DESIRED: tuple[Callable[[RayClusterFacts], Object], ...] = (
    lambda facts: resources.desired_dashboard_route(
        facts, backend(facts, Authentication.OAUTH_PROXY)
    ),
    resources.desired_client_route,
    lambda facts: resources.desired_proxy_service(
        facts, is_oauth_proxy=True, openshift_certificate=True
    ),
    lambda facts: resources.desired_proxy_service_account(facts, openshift_client=True),
    lambda facts: resources.desired_cluster_role_binding(facts, facts.names.cluster_role_binding),
    lambda facts: resources.desired_secret(facts, facts.names.ca_secret, {"ca.key": b"key"}),
    lambda facts: ingress_resources.desired_dashboard_ingress(
        facts,
        DOMAIN,
        CONFIG.ingress,
        backend=backend(facts, Authentication.DISABLED),
        ingress_class=NGINX,
    ),
    lambda facts: ingress_resources.desired_client_ingress(
        facts, DOMAIN, CONFIG.ingress, "12345678", ingress_class=NGINX
    ),
    lambda facts: policies.desired_head_policy(facts, CONFIG, ["ray-system"]),
    lambda facts: policies.desired_workers_policy(facts, RESTRICTED),
    lambda facts: resources.desired_dashboard_http_route(
        facts,
        backend(facts, Authentication.DISABLED),
        GATEWAY,
        dashboard_host(facts.cluster, DOMAIN),
    ),
    lambda facts: resources.desired_path_http_route(
        facts, backend(facts, Authentication.DISABLED), GATEWAY
    ),
    lambda facts: resources.desired_tls_route(
        facts, TLS_ROUTES[0], GATEWAY, client_host(facts.cluster, DOMAIN)
    ),
    lambda facts: resources.desired_ca_config_map(facts, "pem"),
)


@fuzz(0.2, CLUSTERS, NAMES)
def test_each_stored_raycluster_gets_its_objects(cluster: Any, name: str) -> None:
    stored = as_stored(cluster, name)
    if stored is None:
        return
    before = json.dumps(stored)
    for desired in DESIRED:
        obj = desired(RayClusterFacts(stored))
        assert obj == desired(RayClusterFacts(stored))
        assert len(json.dumps(obj)) < 20_000
        metadata = obj["metadata"]
        assert SUBDOMAIN.fullmatch(metadata["name"])
        assert metadata.get("namespace", "ns") == "ns"
        spec = obj.get("spec", {})
        for host in [
            *spec.get("hostnames", ()),
            *(rule["host"] for rule in spec.get("rules", ()) if "host" in rule),
        ]:
            assert host.endswith((f"-{DOMAIN}", f".{DOMAIN}"))
    assert names_of({**stored, "spec": {}, "status": {}}) == names_of(stored)
    facts = RayClusterFacts(stored)
    [facts.actor(concern, KUBERAY_FEATURES) for concern in Concern]
    required = enforce(facts, facts, tuple(Concern), KUBERAY_FEATURES)
    changed = {**stored, "spec": merged(stored.get("spec") or {}, required.patch)}
    assert not enforce(RayClusterFacts(changed), facts, tuple(Concern), KUBERAY_FEATURES)
    assert json.dumps(stored) == before


@fuzz(0.02, CLUSTERS, st.booleans())
def test_client_port_is_open_to_all_only_with_injected_tls(cluster: Any, mtls: bool) -> None:
    stored = as_stored(cluster)
    if stored is None:
        return
    config = KubeRayConfiguration.from_document({"mTLSEnabled": mtls})
    policy = policies.desired_head_policy(RayClusterFacts(stored), config, ["ray-system"])
    open_ports = {
        port["port"]
        for rule in policy["spec"]["ingress"]
        if "from" not in rule
        for port in rule["ports"]
    }
    ports = ports_of(stored)
    if open_ports - {PROXY_PORT}:
        assert open_ports - {PROXY_PORT} == {ports.client}
        assert mtls
        assert has_injected_tls(stored)
    assert not open_ports & {ports.dashboard, ports.metrics, *ports.serve}
    for rule in policy["spec"]["ingress"][1:]:
        assert rule["ports"]


AUTHORITY = ca.create("ecdsa")


@fuzz(
    0.05,
    st.sampled_from(list(AUTHORITY.data())),
    st.integers(0, 700),
    st.binary(max_size=40),
    st.integers(0, 40),
)
def test_changed_ca_is_valid_or_rejected(key: str, at: int, inserted: bytes, removed: int) -> None:
    """Bytes are replaced in the PEM file, and in the certificate or key that it encodes."""
    data = AUTHORITY.data()
    first, *lines, last = data[key].splitlines()
    der = b64decode(b"".join(lines))
    encoded = b64encode(der[:at] + inserted + der[at + removed :])
    for pem in (
        data[key][:at] + inserted + data[key][at + removed :],
        b"\n".join([first, encoded, last, b""]),
    ):
        changed = {**data, key: pem}
        try:
            authority = ca.load(changed[ca.CERTIFICATE_FIELD], changed[ca.PRIVATE_KEY_FIELD])
        except ca.InvalidCertificateAuthority:
            continue
        assert authority.key.public_key() == authority.certificate.public_key()
        renewed = ca.renew(authority).data()
        ca.load(renewed[ca.CERTIFICATE_FIELD], renewed[ca.PRIVATE_KEY_FIELD])
