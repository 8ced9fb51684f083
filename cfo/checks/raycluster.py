"""The checks of RayClusters: admission, KubeRay, the domain of hosts, and the class of Ingresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.raycluster.names import (
    AUTHENTICATION_CONFIG,
    DEFAULT_CLASS_ANNOTATION,
    INGRESS_CLASS,
    INGRESS_CONFIG,
    RAY_CLUSTER,
    ROUTE,
    VERSION_ANNOTATION,
)
from cfo.api.raycluster.openshift_login import uses_oauth_server
from cfo.api.reading import text
from cfo.checks.components import (
    InstalledCRD,
    read_custom_resource,
    read_deployments,
    version_findings,
)
from cfo.checks.findings import (
    APPLY,
    CONFIGURATION,
    GO_OPERATOR,
    SERVED_ELSEWHERE,
    Finding,
    Subject,
    fail,
    not_needed,
    ok,
    skip,
    warn,
)
from cfo.config.kuberay import ProfileTable
from cfo.config.model import OperatorConfiguration
from cfo.runtime import (
    GVK,
    AlreadyExists,
    APIError,
    Client,
    Forbidden,
    NamespacedName,
    Object,
    UnknownKind,
    annotations_of,
    name_of,
)
from cfo.runtime.objects import new_object
from cfo.runtime.webhook import owner_of

_NOT_CALLED: Final = "failed calling webhook"
_OWN_REFUSAL: Final = re.compile(
    r'^admission webhook "[mv]raycluster\.ray\.openshift\.ai" denied the request'
)

_CLUSTER: Final = NamespacedName("", "cluster")
"""The name of the objects with OpenShift's settings."""

_AUTHENTICATION_PAGE: Final = (
    "https://github.com/project-codeflare/cfo/blob/main/docs/raycluster.md"
    "#authentication-without-openshifts-oauth-server"
)

_MAX_CLASSES: Final = 200
"""Characters of the names of IngressClasses in a finding."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a dry run of a RayCluster returned.

    ``served``: the API server serves RayClusters. ``error``: the error; empty if it was admitted. ``defaulted``: the
    mutating webhook has processed it. ``url``: the address of the webhooks outside the cluster, read after an error.
    """

    served: bool
    error: str = ""
    defaulted: bool = False
    url: str = ""


async def admission(subject: Subject) -> Iterable[Finding]:
    """Check the webhooks with a dry run of a RayCluster."""
    found = await _read_admission(subject.client, subject.namespace)
    if _NOT_CALLED in found.error:
        url = await _registered_url(subject.client, subject.configuration)
        found = replace(found, url=url)
    return check_admission(found, subject.configuration)


async def kuberay(subject: Subject) -> Iterable[Finding]:
    """Check KubeRay."""
    crd = await read_custom_resource(subject.client, "rayclusters.ray.io")
    found = await read_deployments(
        subject.client, ["kuberay-operator", "kuberay"], "kuberay-operator"
    )
    if subject.is_embedded and crd.exists and not found:
        return [not_needed("the API server is envtest, where cfo run --embedded simulates KubeRay")]
    return check_kuberay(crd, found, subject.configuration, subject.tested["KubeRay"])


async def domain(subject: Subject) -> Iterable[Finding]:
    """Check the domain of hosts."""
    if subject.config_error is not None:
        raise subject.config_error
    detected: Any = ""
    try:
        settings = await subject.client.get(INGRESS_CONFIG, _CLUSTER, live=True)
        detected = ((settings or {}).get("spec") or {}).get("domain") or ""
    except UnknownKind:
        pass  # not OpenShift
    return check_domain(str(detected), subject.configuration)


async def ingress(subject: Subject) -> Iterable[Finding]:
    """Check whether an ingress controller can serve the Ingresses of dashboards and Ray clients."""
    if subject.config_error is not None:
        raise subject.config_error
    if subject.is_embedded:
        return [not_needed("the API server is envtest, which has no ingress controller")]
    if subject.configuration.kuberay.enabled and subject.configuration.kuberay.gateway.name:
        return [check_gateway(has_routes=await _is_served(subject.client, HTTP_ROUTE))]
    if subject.is_go:
        return [not_needed(GO_OPERATOR)]
    is_openshift = await _is_served(subject.client, ROUTE)
    classes = await subject.client.list(INGRESS_CLASS, live=True)
    return check_ingress(classes, subject.configuration, is_openshift=is_openshift)


async def authentication(subject: Subject) -> Iterable[Finding]:
    """Check whether anything authenticates the users of dashboards, which are not exposed otherwise."""
    if subject.config_error is not None:
        raise subject.config_error
    if subject.is_go:
        return [not_needed(GO_OPERATOR)]
    is_openshift = await _is_served(subject.client, ROUTE)
    settings: Object | None = None
    if is_openshift:
        with suppress(UnknownKind):  # only the API of Routes is installed
            settings = await subject.client.get(AUTHENTICATION_CONFIG, _CLUSTER, live=True)
    has_login = uses_oauth_server(settings)
    return [
        check_authentication(
            subject.configuration, is_openshift=is_openshift, has_openshift_login=has_login
        )
    ]


async def _is_served(client: Client, gvk: GVK) -> bool:
    try:
        await client.mapper.resource(gvk)
    except UnknownKind:
        return False
    return True


async def _read_admission(client: Client, namespace: str) -> Admission:
    """Send a RayCluster as a dry run, which passes through all webhooks and is not stored."""
    container = {"name": "ray-head", "image": "rayproject/ray"}
    spec = {
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}
    }
    cluster = new_object(RAY_CLUSTER, "cfo-doctor", namespace, spec=spec)
    try:
        result = await client.create(cluster, dry_run=True)
    except UnknownKind:
        return Admission(served=False)
    except AlreadyExists:
        return Admission(served=True, defaulted=True)  # admission precedes storage
    except APIError as error:
        if isinstance(error, Forbidden) and "admission webhook" not in error.message:
            raise
        return Admission(served=True, error=error.message)
    return Admission(served=True, defaulted=VERSION_ANNOTATION in annotations_of(result))


async def _registered_url(client: Client, configuration: OperatorConfiguration) -> str:
    """Return the address of the operator outside the cluster that serves the webhooks; empty if none is known."""
    for kind, name in configuration.webhook.configurations:
        try:
            found = await client.get(kind, NamespacedName("", name), live=True)
        except APIError:
            continue
        owner = owner_of(found or {}, "", "")
        if owner is not None and owner.address.startswith("https://"):
            return owner.address
    return ""


def check_admission(
    admission: Admission, configuration: OperatorConfiguration
) -> Iterator[Finding]:
    """Check the dry run of a RayCluster."""
    if not admission.served:
        yield skip("RayClusters are not served, see kuberay")
    elif _NOT_CALLED in admission.error and admission.url:
        yield fail(
            f"the API server cannot call the webhooks: {admission.error}",
            f"the webhooks are registered at {text(admission.url)}: if the operator there has ended, start it again, "
            "which registers its own address; otherwise let the API server reach this address",
        )
    elif _NOT_CALLED in admission.error:
        yield fail(
            f"the API server cannot call the webhooks: {admission.error}",
            "see the checks above; otherwise a NetworkPolicy or firewall blocks the API server (port 9443 of the pods)",
        )
    elif "namespaces" in admission.error and admission.error.endswith("not found"):
        yield skip(f"no dry run: {admission.error}")
    elif _OWN_REFUSAL.search(admission.error):
        yield warn(
            f"the operator's webhook refused a valid RayCluster: {admission.error}",
            "see the check webhooks, because webhooks of the operator may be missing or narrowed; while it is "
            "restarted with other settings, wait until all replicas have them, and try again",
        )
    elif admission.error:
        yield warn(
            f"a valid RayCluster was refused: {admission.error}", "another policy may refuse it"
        )
    elif not admission.defaulted and configuration.kuberay.enabled:
        is_served_elsewhere = configuration.webhook.enabled is False
        yield fail(
            "the mutating webhook was not called for a RayCluster (dry run)",
            SERVED_ELSEWHERE
            if is_served_elsewhere
            else f"see the check webhooks; if it finds nothing, {APPLY}",
        )
    else:
        yield ok("a RayCluster passes through the webhooks (dry run)")


def check_kuberay(
    crd: InstalledCRD,
    operators: Sequence[tuple[NamespacedName, str]],
    configuration: OperatorConfiguration,
    tested: str,
) -> Iterator[Finding]:
    """Check KubeRay: its CRD, and its version compared with the ``tested`` one."""
    if not configuration.kuberay.enabled:
        yield not_needed("kuberay.enabled is false")
        return
    install = f"install KubeRay {tested}: https://docs.ray.io/en/latest/cluster/kubernetes/getting-started.html"
    if not crd.exists:
        yield fail("the CRD rayclusters.ray.io does not exist", install)
        return
    if not crd.established or "v1" not in crd.served:
        served = ", ".join(crd.served) or "no version"
        yield fail(f"the CRD rayclusters.ray.io serves {served}, the operator needs v1", install)
        return
    if not operators:
        yield warn("the CRD exists, but no Deployment of the KubeRay operator was found", install)
    yield from version_findings(operators, tested)
    admitted = configuration.kuberay.operator_namespaces
    namespaces = sorted({key.namespace for key, _ in operators})
    if admitted and namespaces and not set(admitted).intersection(namespaces):
        yield warn(
            f"kuberay.operatorNamespaces is {', '.join(admitted)}, and KubeRay runs in {', '.join(namespaces)}, so it "
            "cannot reach the heads of RayClusters",
            "set kuberay.operatorNamespaces to the namespace where an administrator installed KubeRay (users can "
            "create Deployments with its labels in theirs) and restart the operator",
        )


def check_domain(detected: str, configuration: OperatorConfiguration) -> Iterator[Finding]:
    """Check whether the domain of the hosts of dashboards and Ray clients is known; ``detected`` is OpenShift's."""
    configured = configuration.kuberay.ingress_domain
    if not configuration.kuberay.enabled:
        yield not_needed("kuberay.enabled is false")
    elif configured:
        yield ok(f"kuberay.ingressDomain is {configured}")
    elif detected:
        yield ok(f"{detected}, from ingresses.config.openshift.io/cluster")
    elif configuration.kuberay.gateway.dashboard_host:
        yield ok(f"kuberay.gateway.dashboardHost is {configuration.kuberay.gateway.dashboard_host}")
    else:
        yield warn(
            "unknown: dashboards and Ray clients are not reachable from outside the cluster",
            f"set kuberay.ingressDomain in {CONFIGURATION}, for example to apps.example.com, and restart the operator",
        )


def check_gateway(*, has_routes: bool) -> Finding:
    """Check whether the API server serves the HTTPRoutes that the operator creates with ``kuberay.gateway``."""
    if has_routes:
        return not_needed("the operator creates no Ingresses, but HTTPRoutes (kuberay.gateway)")
    return fail(
        "kuberay.gateway is set, but the CRD httproutes.gateway.networking.k8s.io does not exist: no dashboard is "
        "reachable from outside the cluster",
        f"install the CRDs of the Gateway API, or remove kuberay.gateway from {CONFIGURATION} and restart the operator",
    )


def check_ingress(
    classes: Iterable[Object], configuration: OperatorConfiguration, *, is_openshift: bool
) -> Iterator[Finding]:
    """Check the IngressClass of the Ingresses that the operator creates; ``classes`` are those of the cluster."""
    kuberay = configuration.kuberay
    if not kuberay.enabled:
        yield not_needed("kuberay.enabled is false")
        return
    if is_openshift or not kuberay.ingress_domain:
        yield not_needed("the operator creates no Ingresses")
        return
    defaults: dict[str, bool] = {}
    for item in classes:
        defaults[name_of(item)] = annotations_of(item).get(DEFAULT_CLASS_ANNOTATION) == "true"
    wanted = kuberay.ingress.class_name
    others = text(", ".join(sorted(defaults)), _MAX_CLASSES) or "none"
    unserved = "so nothing serves dashboards and Ray clients"
    if wanted and wanted in defaults:
        yield ok(f"kuberay.ingress.className is {wanted}, which exists")
    elif wanted:
        yield warn(
            f"kuberay.ingress.className is {wanted}, which does not exist, {unserved} (IngressClasses: {others})",
            "install its ingress controller, or correct the name and restart the operator",
        )
    elif not defaults:
        yield warn(
            f"the cluster has no IngressClass, {unserved}",
            "install an ingress controller, or set kuberay.gateway and restart the operator",
        )
    elif any(defaults.values()):
        yield ok("the cluster has a default IngressClass")
    else:
        yield warn(
            f"kuberay.ingress.className is not set, and no IngressClass is the default (IngressClasses: {others})",
            f"set kuberay.ingress.className in {CONFIGURATION} to one of them, and restart the operator",
        )


def check_authentication(
    configuration: OperatorConfiguration, *, is_openshift: bool, has_openshift_login: bool
) -> Finding:
    """Check whether dashboards that require a login can be exposed.

    ``has_openshift_login``: if the cluster is OpenShift, its own OAuth server logs users in.
    """
    kuberay = configuration.kuberay
    if not kuberay.enabled:
        return not_needed("kuberay.enabled is false")
    strictest = ProfileTable(kuberay).strictest().kuberay
    if not strictest.ray_dashboard_oauth_enabled:
        exposed = "no dashboard is exposed" if is_openshift else "dashboards require no login"
        return not_needed(f"kuberay.rayDashboardOAuthEnabled is false: {exposed}")
    if kuberay.authentication.enabled:
        return ok("kuberay.authentication is enabled")
    if is_openshift and has_openshift_login:
        return ok("OpenShift's OAuth server logs users in")
    if "authOptions" in strictest.kuberay_features:
        return ok("only dashboards of RayClusters with Ray's own tokens (authOptions) are exposed")
    cause = "the cluster is not OpenShift"
    remedy = f"set kuberay.authentication in {CONFIGURATION}"
    if is_openshift:
        cause = "OpenShift's own OAuth server does not log users in"
    extent = ""
    if not kuberay.ray_dashboard_oauth_enabled:
        extent = " in the namespaces of the profiles that enforce authentication"
    elif not is_openshift:
        remedy += ", or, if your ingress controller authenticates, kuberay.rayDashboardOAuthEnabled: false"
    return warn(
        f"no dashboard is exposed{extent}: kuberay.authentication is not enabled, and {cause}",
        f"{remedy}, and restart the operator: {_AUTHENTICATION_PAGE}",
    )
