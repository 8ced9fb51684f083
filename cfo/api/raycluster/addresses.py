"""Where a RayCluster is reachable, and who authenticates its users: read from the objects that expose it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from cfo.api.gateway import HTTP_ROUTE, HTTPS_PORT, TLS_ROUTES
from cfo.api.raycluster.cluster import PROXY_CONTAINER, head_pod_spec
from cfo.api.raycluster.facts import Actor, RayClusterFacts
from cfo.api.raycluster.names import ROUTE
from cfo.api.raycluster.ports import PROXY_PORT_NAME
from cfo.api.reading import MAX_MESSAGE, items, mapping, number, path, text
from cfo.runtime import GVK, INGRESS, Object

Children = Mapping[GVK, Sequence[Object]]

KINDS: Final = (INGRESS, ROUTE, HTTP_ROUTE, *TLS_ROUTES)
"""The kinds by which a RayCluster is exposed."""

_MAX_HOST: Final = 253
_DNS_LABEL_LIMIT: Final = 63
_MAX_HOST_NAMES: Final = 10
_MAX_ROUTERS: Final = 20
_MAX_CONDITIONS: Final = 20
_MAX_PATH: Final = 400


def is_known(children: Children) -> bool:
    """Return whether any of the kinds could be read by which a RayCluster is exposed."""
    return any(kind in children for kind in KINDS)


def dashboard_url(facts: RayClusterFacts, children: Children) -> str:
    """Return the URL of the dashboard; empty if it is not exposed, or if a suspended RayCluster has no head."""
    if facts.is_suspended:
        return ""
    return next(_urls(facts.names.dashboard, children), "")


def client_address(facts: RayClusterFacts, children: Children) -> str:
    """Return the address for ``ray.init()`` outside the Kubernetes cluster; empty as for :func:`dashboard_url`."""
    if facts.is_suspended:
        return ""
    url = next(_urls(facts.names.client, children), "")
    if not url:
        return ""
    _, _, host = url.partition("://")
    return f"ray://{host}{_client_port(facts, children)}"


def is_resolvable(url: str) -> bool:
    """Return whether DNS can resolve the host of ``url``, as far as this depends on the length of its labels."""
    _, _, rest = url.partition("://")
    authority, _, _ = rest.partition("/")
    host, _, _ = authority.partition(":")
    return has_valid_labels(host)


def has_valid_labels(host: str) -> bool:
    """Return whether no label of ``host`` is longer than DNS allows."""
    return all(len(label) <= _DNS_LABEL_LIMIT for label in host.split("."))


def _client_port(facts: RayClusterFacts, children: Children) -> str:
    """Return the port of the listener to which the client's TLSRoute is attached; empty for an Ingress or a Route."""
    for kind in TLS_ROUTES:
        for route in children.get(kind, ()):
            if path(route, "metadata", "name") == facts.names.client:
                parent = next(items(path(route, "spec", "parentRefs")), {})
                port = number(parent.get("port")) or HTTPS_PORT
                return f":{port}"
    return ""


def authentication(facts: RayClusterFacts, actor: Actor) -> str:
    """Return how users of the dashboard, of which ``actor`` is responsible, are authenticated.

    The proxies in the head decide it, because a RayCluster keeps them when the configuration changes.
    """
    if actor in (Actor.OPEN_DATA_HUB, Actor.MULTIKUEUE):
        return str(actor.value)
    has_login = _proxy_of_dashboard(facts) == PROXY_CONTAINER
    if facts.has_injected_auth_proxy:
        if has_login:
            return "OIDC login (oauth2-proxy) or bearer token (kube-rbac-proxy)"
        return "bearer token (kube-rbac-proxy)"
    if has_login:
        return "OpenShift login (oauth-proxy)"
    return "Ray token" if facts.requests_ray_token else "none"


def _proxy_of_dashboard(facts: RayClusterFacts) -> str:
    """Return the name of the container to which the Service of the proxy leads: the first that has the named port."""
    for container in items(head_pod_spec(facts.cluster).get("containers")):
        if any(port.get("name") == PROXY_PORT_NAME for port in items(container.get("ports"))):
            return text(container.get("name"), _DNS_LABEL_LIMIT)
    return ""


def route_refusal(ingresses: object) -> str:
    """Return why no router serves an OpenShift Route; empty if one does, or may do so later.

    ``ingresses`` is ``status.ingress`` of the Route. Its host follows from its name and namespace, and the router gives
    a host to the oldest Route that has it: requests of users would go to that of another tenant.
    """
    refusals = [_refusal(each) for each in islice(items(ingresses), _MAX_ROUTERS)]
    if not all(refusals):
        return ""
    return next(iter(refusals), "")


def _refusal(ingress: Mapping[str, Any]) -> str:
    """Return why one router does not serve a Route."""
    for condition in islice(items(ingress.get("conditions")), _MAX_CONDITIONS):
        if condition.get("type") == "Admitted" and condition.get("status") == "False":
            reason = text(condition.get("reason"), _DNS_LABEL_LIMIT) or "Refused"
            return f"{reason}: {text(condition.get('message'), MAX_MESSAGE)}"
    return ""


def _urls(name: str, children: Children) -> Iterator[str]:
    for kind in KINDS:
        for obj in children.get(kind, ()):
            if path(obj, "metadata", "name") != name:
                continue
            if kind == ROUTE and route_refusal(path(obj, "status", "ingress")):
                continue
            yield from _urls_of(mapping(obj.get("spec")))


def _urls_of(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the URLs in the spec of an Ingress, a Route or an HTTPRoute.

    The scheme of an HTTPRoute is that of the Gateway's listener, which is usually HTTPS; the operator requires it where
    users log in.
    """
    scheme = "https" if spec.get("tls") else "http"
    rules = list(items(spec.get("rules")))
    for rule in rules:
        host = text(rule.get("host"), _MAX_HOST)
        if host:
            yield f"{scheme}://{host}"
    host = text(spec.get("host"), _MAX_HOST)
    if host:
        yield f"{scheme}://{host}"
    hostnames = spec.get("hostnames")
    if not isinstance(hostnames, list):
        return
    for hostname in hostnames[:_MAX_HOST_NAMES]:
        host = text(hostname, _MAX_HOST)
        if host:
            yield f"https://{host}{_shared_path(rules)}"


def _shared_path(rules: list[Mapping[str, Any]]) -> str:
    """Return the path of a route on a host that many dashboards share; empty for a host of its own."""
    for rule in rules:
        for match in items(rule.get("matches")):
            value = text(path(match, "path", "value"), _MAX_PATH)
            if len(value) > 1:
                return f"{value.rstrip('/')}/"
    return ""
