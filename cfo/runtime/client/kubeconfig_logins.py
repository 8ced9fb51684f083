"""Logins that a kubeconfig describes: exec plugins, and the auth provider OIDC.

All functions raise :class:`~cfo.runtime.client.kubeconfig_errors.KubeconfigError` without file and context; the caller
removes secrets from the message, which can contain the output of a plugin.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp

from cfo.runtime.client.kubeconfig_errors import KubeconfigError, one_line, read_pem, reason

_EXPIRY_MARGIN: Final = timedelta(minutes=5)
_INVALID: Final = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""What tokens and responses raise that have another content than expected."""


async def run_exec_plugin(plugin: object, base: str, field: str) -> Mapping[str, Any]:
    """Run a client-go credential plugin, and return the ``status`` of its ExecCredential.

    A relative path of the command is relative to the directory ``base``. ``field`` is the path of ``plugin``.
    """
    if not isinstance(plugin, Mapping):
        raise KubeconfigError("must be a mapping", field=field)
    for key in ("command", "apiVersion"):
        if not isinstance(plugin.get(key), str) or not plugin[key]:
            raise KubeconfigError("is required", field=f"{field}.{key}")
    arguments, variables = plugin.get("args") or [], plugin.get("env") or []
    if not isinstance(arguments, list):
        raise KubeconfigError("must be a list", field=f"{field}.args")
    try:
        environment = {str(variable["name"]): str(variable["value"]) for variable in variables}
    except (TypeError, KeyError):
        raise KubeconfigError(
            "must be a list of mappings with name and value", field=f"{field}.env"
        ) from None
    version, command = plugin["apiVersion"], plugin["command"]
    if "/" in command:
        command = str(Path(base) / command)
    request = {
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {"interactive": sys.stdout.isatty()},
    }
    environment = {**os.environ, **environment, "KUBERNETES_EXEC_INFO": json.dumps(request)}
    try:
        code, output, errors = await _run([command, *map(str, arguments)], environment)
    except (FileNotFoundError, PermissionError) as error:
        missing = isinstance(error, FileNotFoundError)
        problem = f"the plugin {command} {'is not installed' if missing else 'is not executable'}"
        hint = one_line(str(plugin.get("installHint") or ""))
        raise KubeconfigError(problem, field=f"{field}.command", hint=hint) from None
    except (OSError, ValueError) as error:
        raise KubeconfigError(
            f"the plugin {command} failed: {reason(error)}", field=field
        ) from None
    if code:
        printed = one_line(errors.decode(errors="replace")) or "it printed nothing on stderr"
        raise KubeconfigError(
            f"the plugin {command} exited with code {code}: {printed}", field=field
        )
    try:
        credential = json.loads(output)
    except ValueError as error:
        raise KubeconfigError(
            f"the plugin {command} printed no valid JSON: {reason(error)}", field=field
        ) from None
    status = credential.get("status") if isinstance(credential, dict) else None
    if not isinstance(status, dict):
        raise KubeconfigError(
            f"the plugin {command} printed no ExecCredential with a status", field=field
        )
    if credential.get("apiVersion") != version:
        problem = f"the plugin {command} printed an ExecCredential of {credential.get('apiVersion')}, not {version}"
        raise KubeconfigError(problem, field=field)
    return status


async def oidc_token(settings: MutableMapping[str, Any], base: str, field: str) -> str:
    """Return the id token in ``settings``, the configuration of the auth provider, after refreshing it if necessary.

    A new id token and refresh token are written to ``settings``. ``field`` is the path of the auth provider.
    """
    try:
        if "id-token" not in settings or _jwt_expires(str(settings["id-token"])):
            await _refresh(
                settings, read_pem(settings, "idp-certificate-authority", base, f"{field}.config")
            )
        return str(settings["id-token"])
    except (aiohttp.ClientError, *_INVALID, TimeoutError, OSError) as error:
        raise KubeconfigError(f"the login failed: {reason(error)}", field=field) from None


async def _refresh(settings: MutableMapping[str, Any], ca_pem: bytes) -> None:
    for name in ("client-id", "idp-issuer-url", "refresh-token"):
        if not settings.get(name):
            raise ValueError(f"no valid id-token, and cannot refresh it without {name}")
    client = basic_authorization(settings["client-id"], settings.get("client-secret") or "")
    # TLS is verified even without a CA in the settings: the request contains the secret and the refresh token.
    tls = ssl.create_default_context(cadata=ca_pem.decode("ascii", "replace") or None)
    issuer = str(settings["idp-issuer-url"]).rstrip("/")
    form = {"grant_type": "refresh_token", "refresh_token": str(settings["refresh-token"])}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        headers={"Accept": "application/json", "Authorization": client},
        raise_for_status=True,
        trust_env=True,
    ) as session:
        async with session.get(f"{issuer}/.well-known/openid-configuration") as response:
            endpoint = (await response.json())["token_endpoint"]
        async with session.post(endpoint, data=form) as response:
            tokens = await response.json()
    settings["id-token"] = tokens["id_token"]
    settings["refresh-token"] = tokens.get("refresh_token") or settings["refresh-token"]


def _jwt_expires(token: str) -> bool:
    """Return whether a JWT has expired, or expires soon. Raises :class:`ValueError` for other strings."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("JWT tokens should contain 3 period-delimited parts")
    expiry = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))).get("exp")
    return expiry is not None and datetime.fromtimestamp(
        expiry, UTC
    ) - _EXPIRY_MARGIN <= datetime.now(UTC)


def basic_authorization(user: object, password: object) -> str:
    """Return the header ``Authorization`` for a user name and a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


async def _run(command: list[str], environment: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Run a program with the standard input of this process; return its exit code and output."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=pipe, stderr=pipe
    )
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    assert process.returncode is not None
    return process.returncode, output, errors
