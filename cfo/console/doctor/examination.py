"""Runs the checks: concurrently, each with a time limit, and a failure of one does not affect the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

import anyio

from cfo.console.doctor import checks, facts, other_operators
from cfo.console.doctor.components import Finding, Subject, fail, skip
from cfo.features import FEATURES
from cfo.manifests.names import SERVICE_ACCOUNT
from cfo.manifests.stack import components, platforms
from cfo.runtime import APIError, Client, Clock, DiscoveryIncomplete, Forbidden, TransportError, UnknownKind
from cfo.runtime.client import Unauthorized
from cfo.version import __version__

_TIMEOUT: Final = 20.0
"""Seconds for each check."""
_PARALLEL: Final = 6

_Check = Callable[[], Awaitable[Iterable[Finding]]]


async def examine(client: Client, namespace: str, config_name: str, clock: Clock) -> list[Finding]:
    """Return the findings for the operator in ``namespace``, in the order of the checks.

    Raises :class:`cfo.runtime.TransportError` and
    :class:`cfo.runtime.client.Unauthorized` if the API server cannot be reached, or does not accept the credentials.
    """
    version, skew = await facts.read_server(client, clock)
    installation = await facts.read_installation(client, namespace, config_name)
    configuration = installation.configuration
    subject = Subject(client, namespace, configuration, installation.config_error, dict(components()))
    shared: Sequence[facts.WebhookConfigurationFacts] | Exception
    try:
        with anyio.fail_after(_TIMEOUT):
            shared = await facts.read_webhooks(client, installation)
    except Exception as error:  # noqa: BLE001 - raised again in each check that needs the webhooks
        shared = error

    def webhooks() -> Sequence[facts.WebhookConfigurationFacts]:
        if isinstance(shared, Exception):
            raise shared
        return shared

    async def operator() -> Iterable[Finding]:
        if installation.deployment_error is not None:
            raise installation.deployment_error
        urls = [url for fact in webhooks() for url in fact.urls]
        return checks.check_operator(installation, __version__, bool(urls))

    async def config() -> Iterable[Finding]:
        if installation.config_error is not None:
            raise installation.config_error
        return checks.check_configuration(installation)

    async def trust() -> Iterable[Finding]:
        found = webhooks()
        secret, pem = await facts.read_certificate(client, installation)
        return checks.check_certificate(secret, pem, found, clock.now())

    async def permissions() -> Iterable[Finding]:
        if installation.deployment is None:
            return [skip("permissions", "no Deployment, so no ServiceAccount to check")]
        pod = installation.deployment["spec"]["template"]["spec"]
        account = str(pod.get("serviceAccountName") or SERVICE_ACCOUNT)
        checked, missing = await facts.read_permissions(client, installation, account)
        return checks.check_permissions(f"system:serviceaccount:{namespace}:{account}", checked, missing)

    async def webhook_configurations() -> Iterable[Finding]:
        return checks.check_webhooks(webhooks())

    async def kubernetes() -> Iterable[Finding]:
        return checks.check_kubernetes(version, dict(platforms())["Kubernetes"])

    async def clocks() -> Iterable[Finding]:
        return checks.check_clock(skew)

    return await _run(
        {
            "kubernetes": kubernetes,
            "clock": clocks,
            "operator": operator,
            other_operators.CHECK: partial(other_operators.check, subject),
            "configuration": config,
            "permissions": permissions,
            "webhooks": webhook_configurations,
            "certificate": trust,
            **{name: partial(check, subject) for feature in FEATURES for name, check in feature.checks.items()},
        }
    )


async def _run(all_checks: dict[str, _Check]) -> list[Finding]:
    results: dict[str, list[Finding]] = {}
    limiter = anyio.CapacityLimiter(_PARALLEL)

    async def run(name: str, check: _Check) -> None:
        async with limiter:
            results[name] = await _run_one(name, check)

    async with anyio.create_task_group() as tasks:
        for name, check in all_checks.items():
            tasks.start_soon(run, name, check)
    return [finding for name in all_checks for finding in results[name]]


async def _run_one(name: str, check: _Check) -> list[Finding]:
    try:
        with anyio.fail_after(_TIMEOUT):
            return list(dict.fromkeys(await check()))
    except TimeoutError:
        return [fail(name, f"no result within {_TIMEOUT:g} s", "check the load of the API server, and try again")]
    except Forbidden as error:
        return [skip(name, f"not allowed to {error.verb} {error.resource}", f"grant it to your user: {error.message}")]
    except (UnknownKind, DiscoveryIncomplete) as error:
        return [skip(name, f"cannot be checked: {error}")]
    except Unauthorized:
        raise
    except (APIError, TransportError) as error:
        return [fail(name, f"cannot be checked: {error}", "check the API server, and try again")]
    except ExceptionGroup as group:
        return await _run_one(name, _raising(group))
    except Exception as error:  # noqa: BLE001 (an object with fields that no server should have stored)
        return [fail(name, f"cannot be checked: {type(error).__name__}: {error}", "check the objects that it reads")]


def _raising(group: ExceptionGroup[Exception]) -> _Check:
    """Return a check that raises the first exception of ``group``, of parallel requests that failed alike."""

    async def check() -> Iterable[Finding]:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error

    return check
