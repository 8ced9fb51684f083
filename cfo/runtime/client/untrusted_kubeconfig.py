"""Kubeconfigs of other authors, for example from Secrets.

The author of a kubeconfig decides which programs its clients run (``exec``), which files they read (``tokenFile``,
``client-certificate``), and where they connect to. Therefore only credentials that are in the kubeconfig itself are
accepted here, and nothing is read or started. Sizes are limited before anything is parsed. Messages name fields and
contain no values.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from cfo.runtime.client.config import ClientConfig, ConfigError, impersonation_headers, proxy_for
from cfo.runtime.client.credentials import Credentials
from cfo.runtime.client.kubeconfig_errors import KubeconfigError

__all__ = ["MAX_KUBECONFIG_BYTES", "KubeconfigPolicy", "parse_untrusted_kubeconfig"]

MAX_KUBECONFIG_BYTES: Final = 64 << 10
"""The maximum size of an untrusted kubeconfig; one with a CA, a client certificate and a key has about 10 kB."""

_MAX_TOKEN_LENGTH: Final = 16 << 10
_MAX_HEADERS: Final = 64
_ABSENT: Final = ("", "~", "null", "Null", "NULL")
_TRUE: Final = ("true", "yes", "on", "y")

_REFUSED: Final[Mapping[str, str]] = {
    "exec": "runs a program",
    "auth-provider": "is not supported in untrusted kubeconfigs",
    "tokenFile": "reads a file",
    "client-certificate": "reads a file",
    "client-key": "reads a file",
    "username": "is not supported by the Kubernetes API",
    "password": "is not supported by the Kubernetes API",
}
_INSTEAD: Final[Mapping[str, str]] = {
    "exec": "use a token or a client certificate",
    "auth-provider": "use a token or a client certificate",
    "tokenFile": "put the token into the field token",
    "client-certificate": "put the content into the field client-certificate-data",
    "client-key": "put the content into the field client-key-data",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeconfigPolicy:
    """What is accepted in an untrusted kubeconfig, in addition to an HTTPS server and its own credentials.

    ``proxy_url``: the field ``proxy-url``. ``insecure``: servers without TLS, and the field
    ``insecure-skip-tls-verify``.
    """

    proxy_url: bool = False
    insecure: bool = False


def parse_untrusted_kubeconfig(
    content: bytes, policy: KubeconfigPolicy | None = None, *, environ: Mapping[str, str] | None = None
) -> ClientConfig:
    """Return the configuration of the current context of a kubeconfig (YAML or JSON).

    The proxy settings in ``environ``, by default the environment of the process, apply to it. Blocks for up to a second
    for hostile content, so call it in a thread. Raises
    :class:`~cfo.runtime.client.kubeconfig_errors.KubeconfigError` with one line, which contains no values.
    """
    policy = policy or KubeconfigPolicy()
    document = _parse(content)
    name = _text(document, "current-context", "", required=True)
    context = _entry(document, "contexts", name, "context")
    cluster = _entry(document, "clusters", _text(context, "cluster", "context", required=True), "cluster")
    user_name = _text(context, "user", "context")
    user = _entry(document, "users", user_name, "user") if user_name else {}
    for field, problem in _REFUSED.items():
        if _is_set(user, field):
            raise KubeconfigError(
                f"is refused, because it {problem}", field=f"user.{field}", hint=_INSTEAD.get(field, "")
            )
    if _is_set(cluster, "certificate-authority"):
        raise KubeconfigError(
            "is refused, because it reads a file",
            field="cluster.certificate-authority",
            hint="put the content into the field certificate-authority-data",
        )
    server = _server(cluster, policy)
    certificate, key = _client_certificate(user)
    try:
        config = ClientConfig(
            server=server,
            ca_pem=_data(cluster, "certificate-authority-data", "cluster"),
            token=_token(user),
            client_cert_pem=certificate,
            client_key_pem=key,
            verify=not _insecure(cluster, policy),
            tls_server_name=_text(cluster, "tls-server-name", "cluster"),
            proxy_url=_proxy(cluster, policy) or proxy_for(server, os.environ if environ is None else environ),
            headers=_impersonation(user),
            namespace=_text(context, "namespace", "context") or "default",
            source="a kubeconfig",
        )
        config.ssl_context(Credentials("", certificate, key))
    except ConfigError:
        raise KubeconfigError("the certificate authority or the client certificate is invalid") from None
    return config


def _parse(content: bytes) -> dict[str, Any]:
    """Return the mapping in ``content``; all scalars are strings."""
    if len(content) > MAX_KUBECONFIG_BYTES:
        raise KubeconfigError(f"has {len(content)} bytes, at most {MAX_KUBECONFIG_BYTES} are allowed")
    try:
        document = yaml.load(content.decode(), yaml.BaseLoader)  # noqa: S506 - it creates only strings, lists and dicts
    except RecursionError:
        raise KubeconfigError("is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise KubeconfigError(f"is not valid YAML{where}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, TypeError):
        raise KubeconfigError("is not valid YAML") from None
    if not isinstance(document, dict):
        raise KubeconfigError("must be a mapping with clusters, contexts and users")
    return document


def _entry(document: Mapping[str, Any], section: str, name: str, key: str) -> Mapping[str, Any]:
    entries = document.get(section)
    if not isinstance(entries, list):
        raise KubeconfigError("must be a list", field=section)
    for entry in entries:
        if isinstance(entry, dict) and entry.get("name") == name:
            value = entry.get(key)
            if isinstance(value, dict):
                return value
            if value in _ABSENT and key == "user":
                return {}
            raise KubeconfigError("must be a mapping", field=f"{section}[].{key}")
    raise KubeconfigError("has no entry of the name that the current context refers to", field=section)


def _is_set(fields: Mapping[str, Any], name: str) -> bool:
    return fields.get(name, "") not in _ABSENT


def _text(fields: Mapping[str, Any], name: str, parent: str, *, required: bool = False) -> str:
    path = f"{parent}.{name}" if parent else name
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise KubeconfigError("must be a string", field=path)
    value = value.strip()
    if value in _ABSENT:
        if required:
            raise KubeconfigError("is required", field=path)
        return ""
    if not value.isprintable():
        raise KubeconfigError("must contain only printable characters", field=path)
    return value


def _server(cluster: Mapping[str, Any], policy: KubeconfigPolicy) -> str:
    server = _text(cluster, "server", "cluster", required=True).rstrip("/")
    field = "cluster.server"
    try:
        parts = urlsplit(server)
        has_host = bool(parts.hostname)
        _ = parts.port
    except ValueError:
        raise KubeconfigError("must be an HTTPS URL with a host", field=field) from None
    if parts.scheme not in ("https", "http") or not has_host or parts.query or parts.fragment or not server.isascii():
        raise KubeconfigError("must be an HTTPS URL with a host", field=field)
    if parts.username is not None or parts.password is not None:
        raise KubeconfigError("must not contain a user or a password", field=field)
    if parts.scheme != "https" and not policy.insecure:
        raise KubeconfigError("is refused, because it is not an HTTPS URL", field=field)
    return server


def _insecure(cluster: Mapping[str, Any], policy: KubeconfigPolicy) -> bool:
    insecure = _text(cluster, "insecure-skip-tls-verify", "cluster").lower() in _TRUE
    if insecure and not policy.insecure:
        field = "cluster.insecure-skip-tls-verify"
        raise KubeconfigError("is refused", field=field, hint="use certificate-authority-data")
    return insecure


def _proxy(cluster: Mapping[str, Any], policy: KubeconfigPolicy) -> str:
    proxy = _text(cluster, "proxy-url", "cluster")
    if proxy and not policy.proxy_url:
        raise KubeconfigError("is refused, because it sends requests to another host", field="cluster.proxy-url")
    try:
        valid = not proxy or (urlsplit(proxy).scheme in ("http", "https") and bool(urlsplit(proxy).hostname))
    except ValueError:
        valid = False
    if not valid:
        raise KubeconfigError("must be an HTTP or HTTPS URL", field="cluster.proxy-url")
    return proxy


def _token(user: Mapping[str, Any]) -> str:
    token = _text(user, "token", "user")
    if len(token) > _MAX_TOKEN_LENGTH or not token.isascii():
        raise KubeconfigError(f"must be ASCII and have at most {_MAX_TOKEN_LENGTH} characters", field="user.token")
    return token


def _data(fields: Mapping[str, Any], name: str, parent: str) -> bytes:
    """Return the PEM content of a base64 field."""
    value = fields.get(name, "")
    if value in _ABSENT:
        return b""
    field = f"{parent}.{name}"
    try:
        content = base64.b64decode("".join(str(value).split()), validate=True)
    except (binascii.Error, ValueError):
        raise KubeconfigError("is not valid base64", field=field) from None
    if b"-----BEGIN " not in content:
        raise KubeconfigError("contains no certificate or key in PEM format", field=field)
    return content


def _client_certificate(user: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return certificate and key, re-encoded, so that OpenSSL reads exactly what was checked.

    A key of 65,536 bits would block the process for minutes.
    """
    certificate, key = _data(user, "client-certificate-data", "user"), _data(user, "client-key-data", "user")
    if not certificate and not key:
        return b"", b""
    if not certificate or not key:
        raise KubeconfigError("requires both client-certificate-data and client-key-data", field="user")
    # Imported lazily: they load cryptography, which is only needed with client certificates.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from cfo.runtime.process.private_keys import load_private_key

    try:
        chain = x509.load_pem_x509_certificates(certificate)
    except ValueError:
        raise KubeconfigError("contains no valid certificate", field="user.client-certificate-data") from None
    try:
        loaded = load_private_key(key)
    except ValueError as error:
        raise KubeconfigError(f"the key {error}", field="user.client-key-data") from None
    return (
        b"".join(member.public_bytes(Encoding.PEM) for member in chain),
        loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _impersonation(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    is_valid = (
        all(isinstance(user.get(name, ""), str) for name in ("as", "as-uid"))
        and isinstance(groups, list)
        and isinstance(extra, dict)
        and all(isinstance(values, list) for values in extra.values())
    )
    headers = impersonation_headers(user) if is_valid else ()
    if (
        not is_valid
        or len(headers) > _MAX_HEADERS
        or any(len(name) > 1024 or len(value) > 1024 or not f"{name}{value}".isprintable() for name, value in headers)
    ):
        raise KubeconfigError("the impersonated user is invalid", field="user.as")
    return headers
