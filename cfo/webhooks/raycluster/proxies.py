"""The proxies in front of the dashboard: containers in the head pod, with their service account and certificate.

Where OpenShift's OAuth server logs users in, this is its OAuth proxy. OpenShift issues the certificate for the proxy's
Service, and treats the service account as an OAuth client; the controller creates both the Service and the service
account. Only users who are allowed to get pods in the RayCluster's namespace get access to the dashboard:
``--openshift-sar`` requires this of browser logins, and ``--openshift-delegate-urls`` of bearer tokens. RayClusters
that were created before the former was added keep their proxy, which lets in every user who can log in to OpenShift.

Elsewhere, all requests pass through kube-rbac-proxy. It verifies the bearer token and asks the API server, with a
SubjectAccessReview, whether the user has permission for the RayCluster, or the configured resource. It then removes the
token, so that Ray, where tenants run their own code, does not get it.

With ``oidc``, oauth2-proxy is in front of it and listens on the public port. It only turns a browser's session cookie
into the ID token of the login, as a bearer token, and redirects ``/`` to the login if there is no session. It passes on
all other requests as they are, which are then rejected unless they have a token of their own, such as those of the job
API. So a mistake in its settings gives no one access.

* oauth2-proxy sends tokens to kube-rbac-proxy over TLS with a verified certificate, because a process in the Ray
  container could listen on the same port of ``localhost`` first. Go programs trust the certificates in ``SSL_CERT_DIR``
  in addition to those in the image.
* The name of the cookie has the prefix ``__Host-``, so that the dashboard of another tenant, with a host below the same
  domain, can neither read nor set it.
* The session is refreshed after two minutes, before the ID tokens of usual issuers expire (Keycloak: after five).

The flags are those of oauth2-proxy 7 and kube-rbac-proxy 0.18 or later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from cfo.api.raycluster.cluster import PROXY_CONTAINER, PROXY_CONTAINERS, RBAC_PROXY_CONTAINER
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import COOKIE_KEY, SETTINGS_KEY
from cfo.api.raycluster.ports import DASHBOARD_PORT, PROXY_PORT, PROXY_PORT_NAME
from cfo.config.authentication import AuthenticationConfiguration, OIDCConfiguration
from cfo.runtime import Object
from cfo.webhooks.raycluster.pod_additions import (
    PodAdditions,
    PodSpec,
    ray_container_index,
)

_TLS_VOLUME: Final = "proxy-tls-secret"
_TLS_DIRECTORY: Final = "/etc/tls/private"

_CONFIG_VOLUME: Final = "rbac-proxy-config"
_CONFIG_DIRECTORY: Final = "/etc/rbac-proxy"

_CA_VOLUME: Final = "oidc-ca"
_CA_DIRECTORY: Final = "/etc/oidc-ca"

_INNER_ADDRESS: Final = "127.0.0.1:8444"
_PORT: Final = {"name": PROXY_PORT_NAME, "containerPort": PROXY_PORT, "protocol": "TCP"}

_SECURITY_CONTEXT: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def proxy_additions(facts: RayClusterFacts, image: str) -> PodAdditions:
    """Return the additions for the head's pod template of a RayCluster."""
    names = facts.names
    required_access = {"resource": "pods", "namespace": names.namespace, "verb": "get"}
    container = {
        "name": PROXY_CONTAINER,
        "image": image,
        "args": [
            f"--https-address=:{PROXY_PORT}",
            "--provider=openshift",
            f"--openshift-service-account={names.proxy_service_account}",
            f"--upstream=http://localhost:{facts.ports.dashboard or DASHBOARD_PORT}",
            f"--tls-cert={_TLS_DIRECTORY}/tls.crt",
            f"--tls-key={_TLS_DIRECTORY}/tls.key",
            "--cookie-secret=$(COOKIE_SECRET)",
            f"--openshift-delegate-urls={orjson.dumps({'/': required_access}).decode()}",
            f"--openshift-sar={orjson.dumps(required_access).decode()}",
        ],
        "env": [_from_secret("COOKIE_SECRET", names.cookie_secret, COOKIE_KEY)],
        "ports": [_PORT],
        "volumeMounts": [_mount(_TLS_VOLUME, _TLS_DIRECTORY)],
    }
    return PodAdditions(
        containers=(container,),
        volumes=(_secret_volume(_TLS_VOLUME, names.proxy_tls_secret),),
        service_account=names.proxy_service_account,
    )


def is_proxy_first(pod: Mapping[str, Any]) -> bool:
    """Return whether the first of several containers, in which KubeRay starts Ray, has the name of a proxy."""
    containers: list[Object] = pod.get("containers") or []
    return len(containers) > 1 and containers[0].get("name") in PROXY_CONTAINERS


def move_proxies_to_end(pod: PodSpec) -> None:
    """Move the first containers behind all others, as far as they have names of proxies."""
    containers = pod["containers"]
    first = ray_container_index(pod) or 0
    pod["containers"] = [*containers[first:], *containers[:first]]


def auth_proxy_additions(
    facts: RayClusterFacts,
    config: AuthenticationConfiguration,
    *,
    rbac_image: str,
    oauth2_image: str,
) -> PodAdditions:
    """Return the additions for the head's pod template of a RayCluster: kube-rbac-proxy, and oauth2-proxy for OIDC."""
    names = facts.names
    volumes = [
        _secret_volume(_TLS_VOLUME, names.proxy_tls_secret),
        _secret_volume(_CONFIG_VOLUME, names.cookie_secret, SETTINGS_KEY),
    ]
    if config.oidc is not None and config.oidc.ca_secret_name:
        volumes.append(_secret_volume(_CA_VOLUME, config.oidc.ca_secret_name, "ca.crt"))
    dashboard_port = facts.ports.dashboard or DASHBOARD_PORT
    containers = [_rbac_proxy(config, rbac_image, dashboard_port)]
    if config.oidc is not None:
        containers.insert(0, _oauth2_proxy(config.oidc, oauth2_image, names.cookie_secret))
    return PodAdditions(
        containers=tuple(containers),
        volumes=tuple(volumes),
        service_account=names.proxy_service_account,
    )


def known_auth_proxy_additions(facts: RayClusterFacts, pod: Mapping[str, Any]) -> PodAdditions:
    """Return additions with the names of all entries that any setting adds to ``pod`` and that it has.

    kube-rbac-proxy and the Secrets of the proxies are always among them.
    """
    names = facts.names
    names_in_pod = {item.get("name") for item in pod.get("containers") or ()}
    containers = [{"name": RBAC_PROXY_CONTAINER}]
    if PROXY_CONTAINER in names_in_pod:
        containers.insert(0, {"name": PROXY_CONTAINER})
    return PodAdditions(
        containers=tuple(containers),
        volumes=(
            _secret_volume(_TLS_VOLUME, names.proxy_tls_secret),
            _secret_volume(_CONFIG_VOLUME, names.cookie_secret, SETTINGS_KEY),
            {"name": _CA_VOLUME},
        ),
        service_account=names.proxy_service_account,
    )


def _rbac_proxy(config: AuthenticationConfiguration, image: str, dashboard_port: int) -> Object:
    oidc = config.oidc
    address = f":{PROXY_PORT}" if oidc is None else _INNER_ADDRESS
    args = [
        f"--secure-listen-address={address}",
        f"--upstream=http://127.0.0.1:{dashboard_port}/",
        f"--config-file={_CONFIG_DIRECTORY}/{SETTINGS_KEY}",
        f"--tls-cert-file={_TLS_DIRECTORY}/tls.crt",
        f"--tls-private-key-file={_TLS_DIRECTORY}/tls.key",
        "--http2-disable",  # a WebSocket, with which logs are followed, needs HTTP/1.1
    ]
    env: list[Object] = []
    mounts = [_mount(_TLS_VOLUME, _TLS_DIRECTORY), _mount(_CONFIG_VOLUME, _CONFIG_DIRECTORY)]
    if config.audiences:
        args.append(f"--auth-token-audiences={','.join(config.audiences)}")
    if config.verifier == "OIDC" and oidc is not None:
        args += [
            f"--oidc-issuer={oidc.issuer_url}",
            "--oidc-clientID=$(CLIENT_ID)",
            f"--oidc-username-claim={oidc.username_claim}",
            f"--oidc-username-prefix={oidc.username_prefix}",
            f"--oidc-groups-claim={oidc.groups_claim}",
            f"--oidc-groups-prefix={oidc.groups_prefix}",
        ]
        env.append(_from_secret("CLIENT_ID", oidc.secret_name, "client-id"))
        if oidc.ca_secret_name:
            args.append(f"--oidc-ca-file={_CA_DIRECTORY}/ca.crt")
            mounts.append(_mount(_CA_VOLUME, _CA_DIRECTORY))
    container = {"name": RBAC_PROXY_CONTAINER, "image": image, "args": args, "volumeMounts": mounts}
    if env:
        container["env"] = env
    if oidc is None:
        container["ports"] = [_PORT]
    return {**container, "securityContext": _SECURITY_CONTEXT}


def _oauth2_proxy(oidc: OIDCConfiguration, image: str, cookie_secret: str) -> Object:
    args = [
        "--provider=oidc",
        f"--oidc-issuer-url={oidc.issuer_url}",
        f"--scope={' '.join(oidc.scopes)}",
        "--code-challenge-method=S256",
        "--insecure-oidc-skip-nonce=false",
        "--email-domain=*",  # kube-rbac-proxy authorizes users
        "--skip-provider-button=true",
        f"--https-address=:{PROXY_PORT}",
        "--http-address=-",
        f"--tls-cert-file={_TLS_DIRECTORY}/tls.crt",
        f"--tls-key-file={_TLS_DIRECTORY}/tls.key",
        f"--upstream=https://{_INNER_ADDRESS}/",
        "--pass-authorization-header=true",
        "--pass-user-headers=false",
        "--pass-basic-auth=false",
        # All other paths than those of the page itself are left to kube-rbac-proxy, with the client's own token.
        r"--skip-auth-route=!=^/(index\.html)?$",
        "--skip-auth-strip-headers=false",
        "--cookie-name=__Host-ray-dashboard",
        "--cookie-secure=true",
        "--cookie-samesite=lax",
        "--cookie-refresh=2m",
        "--cookie-expire=12h",
        "--silence-ping-logging=true",
    ]
    # oauth2-proxy refuses users without a value of its email claim.
    if oidc.username_claim != "email":
        args.append(f"--oidc-email-claim={oidc.username_claim}")
    mounts = [_mount(_TLS_VOLUME, _TLS_DIRECTORY)]
    if oidc.ca_secret_name:
        args += [f"--provider-ca-file={_CA_DIRECTORY}/ca.crt", "--use-system-trust-store=true"]
        mounts.append(_mount(_CA_VOLUME, _CA_DIRECTORY))
    return {
        "name": PROXY_CONTAINER,
        "image": image,
        "args": args,
        "env": [
            _from_secret("OAUTH2_PROXY_CLIENT_ID", oidc.secret_name, "client-id"),
            _from_secret("OAUTH2_PROXY_CLIENT_SECRET", oidc.secret_name, "client-secret"),
            _from_secret("OAUTH2_PROXY_COOKIE_SECRET", cookie_secret, COOKIE_KEY),
            {"name": "SSL_CERT_DIR", "value": _TLS_DIRECTORY},
        ],
        "ports": [_PORT],
        "volumeMounts": mounts,
        "securityContext": _SECURITY_CONTEXT,
    }


def _from_secret(variable: str, secret: str, key: str) -> Object:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _mount(volume: str, path: str) -> Object:
    return {"name": volume, "mountPath": path, "readOnly": True}


def _secret_volume(name: str, secret: str, key: str = "") -> Object:
    source: dict[str, Any] = {"secretName": secret}
    if key:
        source["items"] = [{"key": key, "path": key}]
    return {"name": name, "secret": source}
