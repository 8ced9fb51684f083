"""A ValidatingAdmissionPolicy that reserves the hosts of dashboards and Ray clients for their RayClusters.

A reserved host is allowed only for a user with a permission that operators have, who writes an object whose controller
is a RayCluster, if the host contains the name of this RayCluster and the namespace of the object. This operator has a
permission for it; KubeRay and the Go operator may update the status of RayClusters. Both rules are needed. The
operator creates objects for tenants, so an exemption of its user would be one for all of them. And tenants can write
any controller reference: the name ``a`` in the namespace ``b-c`` and the name ``a-b`` in ``c`` have the same host.

The policy limits how many hosts one object has, as well. Together with the quota of the guardrails, the operator has
room for all hosts in a namespace (:mod:`cfo.runtime.cache.budget`), so that no tenant can make its claims unknown,
which would refuse new hosts to others.

Updates that do not change the spec are allowed, so that finalizers can be removed from older objects.
"""

from __future__ import annotations

from typing import Final

from cfo.api.raycluster.names import HASH_DIGITS, SECRET_DIGITS
from cfo.api.reserved_hosts import MAY_RESERVE, RESERVED_HOST_PREFIXES
from cfo.manifests.admission_policy import POLICY_API, match_constraints, writes_of
from cfo.manifests.names import PREFIX, named
from cfo.runtime import Object

NAME: Final = f"{PREFIX}-reserved-hosts"
MAX_HOSTS: Final = 1000
"""How many hosts one object may have, and how many rules, because a rule needs no host."""

_HASH: Final = f"(-([0-9a-f]{{{HASH_DIGITS}}}|[0-9a-f]{{{SECRET_DIGITS}}}))?"
"""The hash in the host of a RayCluster whose plain host another one has, or may have."""

_MAY_RESERVE: Final = (
    f"authorizer.group('{MAY_RESERVE.group}').resource('{MAY_RESERVE.resources[0]}')"
    f".namespace(request.namespace).check('{MAY_RESERVE.verbs[0]}').allowed()"
)
_MAY_UPDATE_STATUS: Final = (
    "authorizer.group('ray.io').resource('rayclusters').subresource('status')"
    ".namespace(request.namespace).check('update').allowed()"
)

_SPEC_CHANGES: Final = "oldObject == null || object.spec != oldObject.spec"

_RULES: Final = "has(object.spec.rules) ? object.spec.rules : []"
_HOSTS: Final = (
    f"(({_RULES}).filter(rule, has(rule.host)).map(rule, string(rule.host))"
    " + (has(object.spec.hostnames) ? object.spec.hostnames.map(host, string(host)) : [])"
    " + (has(object.spec.host) && object.spec.host != '' ? [string(object.spec.host)]"
    # OpenShift makes the host of a Route without one
    " : (request.kind.kind == 'Route' ? [object.metadata.name + '-' + request.namespace] : []))"
    # a router of OpenShift appends its domain to it
    " + (has(object.spec.subdomain) ? [string(object.spec.subdomain)] : []))"
    # OpenShift accepts upper case, which DNS ignores
    ".map(host, host.lowerAscii())"
)
# An ingress controller can serve, and an issuer order, a certificate for these hosts.
_CERTIFICATES: Final = (
    "(request.kind.kind == 'Ingress' && has(object.spec.tls) ? object.spec.tls : [])"
    ".filter(entry, has(entry.hosts))"
)
_OWNERS: Final = (
    "has(object.metadata.ownerReferences) ? object.metadata.ownerReferences.filter(owner,"
    " has(owner.controller) && owner.controller && owner.kind == 'RayCluster'"
    " && owner.apiVersion.startsWith('ray.io/')) : []"
)


def _is_reserved(host: str) -> str:
    """Return the CEL expression for whether ``host``, a CEL expression, has a reserved prefix."""
    return " || ".join(f"{host}.startsWith('{prefix}')" for prefix in RESERVED_HOST_PREFIXES)


def _belongs(host: str) -> str:
    """Return the CEL expression for whether ``host`` is one of the RayCluster ``owner`` in the namespace."""
    # The name is compared as a string, because owner references can contain any text, also a regular expression.
    return " || ".join(_has_prefix(host, prefix) for prefix in RESERVED_HOST_PREFIXES)


def _has_prefix(host: str, prefix: str) -> str:
    first = f"'{prefix}' + owner.name + '-' + request.namespace"
    rest = f"{host}.substring(size({first}))"
    return f"({host}.startsWith({first}) && {rest}.matches('^{_HASH}([.]|$)'))"


def policy() -> list[Object]:
    """Return the policy and its binding."""
    rules = [
        writes_of("networking.k8s.io", "ingresses"),
        writes_of("gateway.networking.k8s.io", "httproutes", "tlsroutes", "grpcroutes"),
        writes_of("route.openshift.io", "routes"),
    ]
    prefixes = " and ".join(RESERVED_HOST_PREFIXES)
    belongs = f"({_MAY_RESERVE} || {_MAY_UPDATE_STATUS}) && variables.owners.exists(owner, {_belongs('host')})"
    are_allowed = f"all(host, !({_is_reserved('host')}) || ({belongs}))"
    reserved = {
        "message": f"hosts with the prefixes {prefixes} are reserved for RayClusters of the namespace, and "
        "written only by an operator",
        "reason": "Forbidden",
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": match_constraints(rules),
        "matchConditions": [{"name": "spec-changes", "expression": _SPEC_CHANGES}],
        "variables": [
            {"name": "hosts", "expression": _HOSTS},
            {"name": "certificates", "expression": _CERTIFICATES},
            {"name": "owners", "expression": _OWNERS},
        ],
        "validations": [
            {
                "expression": f"size(variables.hosts) <= {MAX_HOSTS} && size({_RULES}) <= {MAX_HOSTS}"
                f" && size(variables.certificates) <= {MAX_HOSTS}",
                "message": f"must have at most {MAX_HOSTS} hosts and rules",
                "reason": "Forbidden",
            },
            {"expression": f"variables.hosts.{are_allowed}", **reserved},
            {
                "expression": f"variables.certificates.all(entry, entry.hosts.{are_allowed})",
                **reserved,
            },
        ],
    }
    binding = {"policyName": NAME, "validationActions": ["Deny"]}
    return [
        named(POLICY_API, "ValidatingAdmissionPolicy", NAME, spec=spec),
        named(POLICY_API, "ValidatingAdmissionPolicyBinding", NAME, spec=binding),
    ]
