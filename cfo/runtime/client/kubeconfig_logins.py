"""Logins of a kubeconfig through kubernetes-asyncio: exec plugins, OIDC, and the auth provider gcp.

The import of this module takes 0.5 s of CPU and 60 MB, because kubernetes-asyncio imports all its generated models.
:mod:`cfo.runtime.client.credentials` imports it in a thread, and only if a user needs one of these logins.

kubernetes-asyncio does not end a program if the caller is cancelled, and does not support ``provideClusterInfo``.

All functions raise :class:`~cfo.runtime.client.kubeconfig_errors.KubeconfigError` without file and context; the caller
removes secrets from the message, which can contain the output of a plugin.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

import aiohttp
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.exec_provider import ExecProvider
from kubernetes_asyncio.config.google_auth import google_auth_credentials
from kubernetes_asyncio.config.kube_config import ConfigNode
from kubernetes_asyncio.config.openid import OpenIDRequestor

from cfo.runtime.client.kubeconfig_errors import KubeconfigError, one_line, reason
from cfo.runtime.pki.trust import client_context

_INVALID: Final = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""What kubernetes-asyncio raises for settings and responses with another content than expected."""

_EXITED: Final = "exec: process returned "
_OTHER_VERSION: Final = "exec: plugin api version "
_MALFORMED: Final = "exec: malformed response"


async def run_exec_plugin(plugin: object, base: str, field: str) -> Mapping[str, Any]:
    """Run a client-go credential plugin, and return the ``status`` of its ExecCredential.

    A relative path of the command is relative to the directory ``base``. ``field`` is the path of ``plugin``.
    """
    if not isinstance(plugin, Mapping):
        raise KubeconfigError("must be a mapping", field=field)
    settings = _plugin_settings(plugin, base, field)
    command = settings["command"]
    try:
        status = await ExecProvider(ConfigNode(field, settings)).run()
    except (FileNotFoundError, PermissionError) as error:
        missing = isinstance(error, FileNotFoundError)
        problem = f"the plugin {command} {'is not installed' if missing else 'is not executable'}"
        hint = one_line(str(plugin.get("installHint") or ""))
        raise KubeconfigError(problem, field=f"{field}.command", hint=hint) from None
    except ConfigException as error:
        problem = _plugin_problem(error, settings["apiVersion"])
        raise KubeconfigError(f"the plugin {command} {problem}", field=field) from None
    except (OSError, ValueError) as error:
        problem = f"the plugin {command} failed: {reason(error)}"
        raise KubeconfigError(problem, field=field) from None
    except TypeError:  # raised for JSON that is neither a mapping nor a list
        status = None
    if not isinstance(status, dict):
        problem = f"the plugin {command} printed no ExecCredential with a status"
        raise KubeconfigError(problem, field=field)
    return status


def _plugin_settings(plugin: Mapping[str, Any], base: str, field: str) -> dict[str, Any]:
    """Return the settings of a plugin that kubernetes-asyncio reads, after checking them."""
    for key in ("command", "apiVersion"):
        if not isinstance(plugin.get(key), str) or not plugin[key]:
            raise KubeconfigError("is required", field=f"{field}.{key}")
    command = plugin["command"]
    if "/" in command:
        command = str(Path(base) / command)
    arguments = plugin.get("args") or []
    if not isinstance(arguments, list):
        raise KubeconfigError("must be a list", field=f"{field}.args")
    try:
        variables = [
            {"name": str(variable["name"]), "value": str(variable["value"])}
            for variable in plugin.get("env") or []
        ]
    except (TypeError, KeyError):
        problem = "must be a list of mappings with name and value"
        raise KubeconfigError(problem, field=f"{field}.env") from None
    if plugin.get("interactiveMode") == "Always" and not _has_terminal():
        problem = f"the plugin {command} needs a terminal, and the standard input is not a terminal"
        raise KubeconfigError(problem, field=f"{field}.interactiveMode")
    settings: dict[str, Any] = {"command": command, "apiVersion": plugin["apiVersion"]}
    # kubernetes-asyncio rejects an empty list.
    if arguments:
        settings["args"] = [str(argument) for argument in arguments]
    if variables:
        settings["env"] = variables
    return settings


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _plugin_problem(error: ConfigException, version: str) -> str:
    """Return the problem of a plugin with this API version, as the predicate of a sentence."""
    message = str(error)
    if isinstance(error.__cause__, ValueError):
        return f"printed no valid JSON: {reason(error.__cause__)}"
    if message.startswith(_EXITED):
        code, _, printed = message.removeprefix(_EXITED).partition(". ")
        return f"exited with code {code}: {one_line(printed) or 'it printed nothing on stderr'}"
    if message.startswith(_OTHER_VERSION):
        printed, _, _ = message.removeprefix(_OTHER_VERSION).partition(" does not match ")
        return f"printed an ExecCredential of {one_line(printed)}, not {version}"
    if message.startswith(_MALFORMED):
        return "printed no ExecCredential with a status"
    return f"failed: {reason(error)}"


class _VerifyingRequestor(OpenIDRequestor):
    """Refreshes tokens over verified TLS, because the requests contain the client secret and the refresh token.

    Without a CA in the kubeconfig, the original disables verification; with a CA, it fails.
    """

    def __init__(self, settings: Mapping[str, Any], tls: ssl.SSLContext) -> None:
        super().__init__(
            client_id=str(settings["client-id"]),
            client_secret=str(settings.get("client-secret") or ""),
            issuer_url=str(settings["idp-issuer-url"]),
        )
        self._tls = tls

    def _get_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(ssl=self._tls)


async def refresh_oidc_tokens(
    settings: MutableMapping[str, Any], ca_pem: bytes, field: str
) -> None:
    """Write a new id token, and the refresh token of the response, to the ``settings`` of the auth provider ``field``.

    ``ca_pem``: the CA certificates of the issuer, empty for the system's CA certificates.
    """
    for name in ("client-id", "idp-issuer-url", "refresh-token"):
        if not settings.get(name):
            problem = f"the login failed: no valid id-token, and cannot refresh it without {name}"
            raise KubeconfigError(problem, field=field)
    try:
        requestor = _VerifyingRequestor(settings, client_context(ca_pem))
        tokens = await requestor.refresh_token(str(settings["refresh-token"]))
        settings["id-token"] = tokens["id_token"]
        settings["refresh-token"] = tokens.get("refresh_token") or settings["refresh-token"]
    except ConfigException as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise KubeconfigError(f"the login failed: {reason(cause)}", field=field) from None
    except (aiohttp.ClientError, *_INVALID, TimeoutError, OSError) as error:
        raise KubeconfigError(f"the login failed: {reason(error)}", field=field) from None


async def refresh_google_token(settings: MutableMapping[str, Any], field: str) -> None:
    """Write a new access token and its expiry to the ``settings`` of the auth provider ``field``.

    The program in ``cmd-path``, usually gcloud, prints the token.
    """
    try:
        credentials = await google_auth_credentials(ConfigNode(field, settings))
    except (*_INVALID, OSError):
        # Without the reason, which can be the output of the program.
        raise KubeconfigError(
            "the auth provider gcp has no valid access token, and cannot get one",
            field=field,
            hint="use the exec plugin gke-gcloud-auth-plugin, as current versions of kubectl do",
        ) from None
    settings["access-token"] = credentials.token
    settings["expiry"] = credentials.expiry
