"""Tests of the lookups by the hosts of other clients' Ingresses and routes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

import orjson
import pytest

from cfo.api.gateway import HTTP_ROUTE, TLS_ROUTES
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.controllers.host_claims import Holder, HostClaims, claims_of
from cfo.controllers.raycluster.host_collisions import (
    CLAIMS_CHANGED,
    CandidateHosts,
    HostChoice,
    choose_host,
    clusters_at_address,
    clusters_of_claims,
)
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.informer import Informer, Reader
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.objects.kinds import INGRESS
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object


class CountingReader(Reader):
    """A reader that contains one key and counts the lookups."""

    def __init__(self, key: NamespacedName) -> None:
        self.key = key
        self.lookups = 0

    def may_exist(self, key: NamespacedName, /) -> bool:
        self.lookups += 1
        return key == self.key


def test_address_is_split_only_where_a_namespace_can_begin() -> None:
    reader = CountingReader(NamespacedName("n" * 63, "a-" * 60))
    assert list(clusters_at_address(reader, f"{'a-' * 60}-{'n' * 63}")) == [reader.key]
    assert reader.lookups <= 64
    reader = CountingReader(NamespacedName("c", "a-b"))
    assert list(clusters_at_address(reader, "a-b-c")) == [reader.key]
    reader.lookups = 0
    assert list(clusters_at_address(reader, "-" * 240)) == []
    assert reader.lookups <= 64


class Claimants(Reader):
    """An informer of some objects and its reader, with the index of claims.

    It has no room for all objects of the namespaces ``unknown``.
    """

    def __init__(self, gvk: GVK, *objects: Object, unknown: Collection[str] = ()) -> None:
        self._unknown = unknown
        decoder = EntryDecoder(gvk)
        self.gvk = gvk
        self.reader = self
        self._entries = [decoder.decode(orjson.dumps(obj)) for obj in objects]

    @property
    def unindexed(self) -> Collection[str]:
        return self._unknown

    def entry(self, key: NamespacedName) -> Entry | None:
        return next((entry for entry in self._entries if entry.key == key), None)

    def entries(
        self, namespace: str = "", selector: Any = "", *, index: tuple[str, str] | None = None
    ) -> list[Entry]:
        assert index is not None
        return [entry for entry in self._entries if index[1] in claims_of(entry)]


NO_CLUSTERS = CountingReader(NamespacedName("", ""))
CLUSTER = {"metadata": {"name": "rc", "namespace": "ns", "uid": "cluster-uid"}}
HOSTS = CandidateHosts("plain.test", "hashed.test", "hash", "secret.test", "secret")
KEY = NamespacedName("ns", "ray-dashboard-rc")


def claimant(name: str, namespace: str = "ns", *, uid: str = "", **spec: Any) -> Object:
    """Return an object that claims hosts; ``uid`` is that of its controller, which calls itself RayCluster rc."""
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": "rc",
        "uid": uid,
        "controller": True,
    }
    owners = [owner] if uid else []
    return {
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
        "spec": spec,
    }


def choice(*claimants: Claimants, kind: str = "HTTPRoute") -> HostChoice:
    claims = HostClaims(lambda: cast("list[Informer]", list(claimants)))
    return choose_host(claims, NO_CLUSTERS, CLUSTER, kind, KEY, HOSTS)


class CountingClaims(HostClaims):
    """Claims that count the objects which are examined."""

    examined = 0

    def of(self, claim: str) -> Iterator[Holder]:
        for holder in super().of(claim):
            self.examined += 1
            yield holder


def test_few_of_many_objects_with_the_same_host_are_examined() -> None:
    planted = [
        claimant(f"planted-{number}", "attacker", rules=[{"host": "plain.test"}])
        for number in range(500)
    ]
    own = claimant(KEY.name, uid="cluster-uid", rules=[{"host": "plain.test"}])
    for own_objects, reason in (([], "HostTaken"), ([own], "HostShared")):
        claims = CountingClaims(
            lambda own=own_objects: cast("list[Informer]", [Claimants(INGRESS, *own, *planted)])
        )
        found = choose_host(claims, NO_CLUSTERS, CLUSTER, "Ingress", KEY, HOSTS)
        assert (found.reason, claims.examined <= 5) == (reason, True)


class OlderCluster(Reader):
    """A reader of one RayCluster: rc-x in namespace ns, which has the address of rc in namespace x-ns."""

    def __init__(self) -> None:
        content = {
            "name": "rc-x",
            "namespace": "ns",
            "uid": "older",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        self._entry = EntryDecoder(RAY_CLUSTER).decode(orjson.dumps({"metadata": content}))

    def may_exist(self, key: NamespacedName, /) -> bool:
        return key == self._entry.key

    def entry(self, key: NamespacedName) -> Entry | None:
        return self._entry if self.may_exist(key) else None


NEWER: Object = {
    "metadata": {
        "name": "rc",
        "namespace": "x-ns",
        "uid": "newer",
        "creationTimestamp": "2026-02-01T00:00:00Z",
    }
}
NEWER_KEY = NamespacedName("x-ns", "ray-dashboard-rc")


def test_owner_of_an_older_cluster_of_the_address_takes_no_hashed_host() -> None:
    """Its tenant can let any Ingress belong to its RayCluster."""
    rules = [{"host": "hashed.test"}]
    own = claimant(NEWER_KEY.name, "x-ns", uid="newer", rules=rules)
    planted = claimant("planted", uid="older", rules=rules)
    claims = HostClaims(lambda: cast("list[Informer]", [Claimants(INGRESS, own, planted)]))
    found = choose_host(claims, OlderCluster(), NEWER, "Ingress", NEWER_KEY, HOSTS)
    assert (found.suffix, found.reason) == ("hash", "HostShared")


def test_newer_cluster_gets_an_unguessable_host_if_a_user_has_taken_the_hashed_one() -> None:
    """The hash follows from name and namespace, so another tenant can have a RayCluster with it as its namespace."""
    planted = claimant("planted", "hash", rules=[{"host": "hashed.test"}])
    claims = HostClaims(lambda: cast("list[Informer]", [Claimants(INGRESS, planted)]))
    found = choose_host(claims, OlderCluster(), NEWER, "Ingress", NEWER_KEY, HOSTS)
    assert (found.suffix, found.reason) == ("secret", "HostTaken")
    assert "host hashed.test is used by Ingress hash/planted, so secret.test" in found.message


@pytest.mark.parametrize(
    ("uid", "clusters"),
    [("newer", NO_CLUSTERS), ("older", OlderCluster()), ("other", OlderCluster())],
)
def test_few_objects_of_the_own_or_an_older_cluster_are_examined(
    uid: str, clusters: Reader
) -> None:
    rules = [{"host": "plain.test"}]
    own = claimant(NEWER_KEY.name, "x-ns", uid="newer", rules=rules)
    planted = [
        claimant(f"p{n}", "x-ns" if uid == "newer" else "ns", uid=uid, rules=rules)
        for n in range(2000)
    ]
    for objects in ([own, *planted], planted):
        claims = CountingClaims(
            lambda objects=objects: cast("list[Informer]", [Claimants(INGRESS, *objects)])
        )
        choose_host(claims, clusters, NEWER, "Ingress", NEWER_KEY, HOSTS)
        assert claims.examined < 500


class AllClusters(Reader):
    """A reader in which each RayCluster of namespace ns exists."""

    def __init__(self) -> None:
        pass

    def may_exist(self, key: NamespacedName, /) -> bool:
        return key.namespace == "ns"


def test_object_with_the_hosts_of_all_clusters_wakes_few() -> None:
    rules = [
        {"host": "unrelated.test"},
        *({"host": f"ray-dashboard-c{n}-ns.apps.test"} for n in range(2000)),
    ]
    (entry,) = Claimants(INGRESS, claimant("planted", "attacker", rules=rules))._entries
    found = list(clusters_of_claims(AllClusters(), entry, "apps.test"))
    assert found[0] == NamespacedName("ns", "c0")
    assert len(found) <= 100


def test_change_that_concerns_no_host_wakes_no_cluster() -> None:
    """Else a user could cause reconciles of the clusters of others with annotations."""
    rules = [{"host": "ray-dashboard-c-ns.apps.test"}]
    old, annotated, moved, owned = (
        Claimants(INGRESS, obj)._entries[0]
        for obj in (
            claimant("i", rules=rules),
            claimant("i", rules=rules, ingressClassName="other"),
            claimant("i", rules=[]),
            claimant("i", uid="cluster-uid", rules=rules),
        )
    )
    changes = [
        CLAIMS_CHANGED(Event(EventType.UPDATED, old.key, old, new))
        for new in (annotated, moved, owned)
    ]
    assert changes == [False, True, True]


def test_route_takes_the_host_of_the_ingress_that_it_replaces() -> None:
    own = claimant(KEY.name, uid="cluster-uid", rules=[{"host": "hashed.test"}])
    assert choice(Claimants(INGRESS, own), Claimants(HTTP_ROUTE)) == HostChoice("hash")


def test_host_of_a_route_is_not_used_by_an_ingress() -> None:
    foreign = claimant("foreign", "elsewhere", hostnames=["plain.test"])
    found = choice(Claimants(INGRESS), Claimants(TLS_ROUTES[0], foreign), kind="Ingress")
    assert (found.suffix, found.reason) == (None, "HostTaken")
    assert "TLSRoute elsewhere/foreign" in found.message


def test_uid_of_the_cluster_in_another_namespace_proves_nothing() -> None:
    forged = claimant(KEY.name, "elsewhere", uid="cluster-uid", hostnames=["plain.test"])
    assert choice(Claimants(HTTP_ROUTE, forged)).suffix is None


# Claims that are not known.


def crowded(*claimants: Object, gvk: GVK = INGRESS) -> Claimants:
    return Claimants(gvk, *claimants, unknown=["attacker"])


def test_host_that_an_unknown_object_may_have_counts_as_taken() -> None:
    found = choice(crowded(), kind="Ingress")
    assert (found.suffix, found.reason) == ("secret", "HostTaken")
    assert "one of the Ingress objects in namespace attacker" in found.message
    assert "secret.test is used instead" in found.message


def test_known_object_with_the_host_is_named_while_others_are_not_known() -> None:
    foreign = claimant("foreign", "elsewhere", hostnames=["plain.test"])
    found = choice(crowded(foreign), kind="Ingress")
    assert (found.suffix, found.reason) == (None, "HostTaken")
    assert "elsewhere/foreign" in found.message


@pytest.mark.parametrize(
    ("host", "suffix"), [("plain.test", ""), ("hashed.test", "hash"), ("secret.test", "secret")]
)
def test_host_that_a_cluster_has_is_kept_while_claims_are_not_known(host: str, suffix: str) -> None:
    own = claimant(KEY.name, uid="cluster-uid", rules=[{"host": host}])
    assert choice(crowded(own), kind="Ingress") == HostChoice(suffix)
    assert choice(Claimants(INGRESS, own), kind="Ingress") == HostChoice(suffix)


@pytest.mark.parametrize("has_host", [False, True])
def test_host_that_dns_cannot_resolve_is_reported_in_each_reconcile(*, has_host: bool) -> None:
    hosts = CandidateHosts(f"{'k' * 64}.test", "hashed.test", "hash", "secret.test", "secret")
    rules = [{"host": hosts.plain}] if has_host else []
    own = Claimants(INGRESS, claimant(KEY.name, uid="cluster-uid", rules=rules))
    claims = HostClaims(lambda: cast("list[Informer]", [own]))
    found = choose_host(claims, NO_CLUSTERS, CLUSTER, "Ingress", KEY, hosts)
    assert (found.suffix, found.reason) == ("", "HostTooLong")
    assert hosts.plain in found.message


def test_younger_cluster_of_an_address_takes_no_hashed_host_while_claims_are_not_known() -> None:
    claims = HostClaims(lambda: cast("list[Informer]", [crowded()]))
    found = choose_host(claims, OlderCluster(), NEWER, "Ingress", NEWER_KEY, HOSTS)
    assert (found.suffix, found.reason) == ("secret", "HostTaken")


def test_unguessable_host_depends_on_the_uid() -> None:
    def host_of(cluster: Object, domain: str, suffix: str) -> str:
        return f"{cluster['metadata']['name']}-{suffix}.{domain}"

    hosts = CandidateHosts.of(CLUSTER, "test", host_of)
    recreated = {"metadata": {**CLUSTER["metadata"], "uid": "another"}}
    other = CandidateHosts.of(recreated, "test", host_of)
    assert (hosts.plain, hosts.hashed) == (other.plain, other.hashed)
    assert hosts.unguessable != other.unguessable
    assert len(hosts.secret_suffix) == 16
    assert [hosts.with_suffix(suffix) for suffix in ("", hosts.suffix, hosts.secret_suffix)] == [
        hosts.plain,
        hosts.hashed,
        hosts.unguessable,
    ]


def test_only_unknown_http_routes_can_have_a_path() -> None:
    path = CandidateHosts("/ray/ns/rc")

    def choose(claimants: Claimants) -> HostChoice:
        claims = HostClaims(lambda: cast("list[Informer]", [claimants]))
        return choose_host(claims, NO_CLUSTERS, CLUSTER, "HTTPRoute", KEY, path)

    assert choose(crowded()) == HostChoice("")
    found = choose(crowded(gvk=HTTP_ROUTE))
    assert (found.suffix, found.reason) == (None, "HostTaken")
    assert "path /ray/ns/rc may be used by one of the HTTPRoute objects" in found.message


def test_claims_are_hosts_and_paths_of_dashboards() -> None:
    (entry,) = Claimants(
        HTTP_ROUTE,
        claimant(
            "r",
            hostnames=["a.test"],
            rules=[
                {"matches": [{"path": {"type": "Exact", "value": "/ray/ns/rc"}}]},
                {
                    "matches": [
                        {"path": {"value": "/ray/ns/rc/"}},
                        {"path": {"value": "/other"}},
                        {"headers": []},
                    ]
                },
                {
                    "matches": [
                        {"path": {"value": "/ray/ns/other/api/jobs/"}},
                        {"path": {"value": "/ray/ns/rc/api"}},
                    ]
                },
                {},
            ],
        ),
    )._entries
    # the Gateway prefers a longer path, so the route would get requests of the dashboard, with their tokens
    assert claims_of(entry) == ["a.test", "/ray/ns/rc", "/ray/ns/other"]
