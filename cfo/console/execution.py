"""What commands share: the configuration of logs, a client, and errors as one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cfo.console.errors import (
    ClusterUnreadable,
    CommandFailed,
    InvalidInput,
    cluster_failure,
    one_line,
    run_async,
)
from cfo.version import CONFIG_MAP_NAME

if TYPE_CHECKING:
    from cfo.runtime import Client

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


def kubeconfig_option(
    text: str = "by default $KUBECONFIG, then ~/.kube/config.",
) -> Callable[[_F], _F]:
    """Return the option ``--kubeconfig``; ``text`` follows in its help."""
    return click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help=f"Path of the kubeconfig; {text}",
    )


def seconds(value: str) -> float:
    """Return the seconds in a duration, as kubectl and the configuration have it, or in a number; for options."""
    found = _seconds_of(value)
    if found is None or not found > 0:  # also NaN
        raise click.BadParameter(
            f"{value!r}: must be a duration such as 90s or 5m, or a number of seconds, above 0"
        )
    return found


def _seconds_of(text: str) -> float | None:
    from cfo.runtime.objects import parse_duration

    for duration in (text, f"{text}s"):
        with suppress(ValueError):
            return parse_duration(duration).total_seconds()
    return None


def timeout_option(default: str, text: str) -> Callable[[_F], _F]:
    """Return the option ``--timeout``, of which ``text`` is the help, and whose value is in seconds."""
    return click.option(
        "--timeout",
        type=seconds,
        default=default,
        show_default=True,
        metavar="DURATION",
        help=text,
    )


CONTEXT: Final = click.option(
    "--context", metavar="NAME", help="Context of the kubeconfig; by default the current one."
)

CONFIG: Final = click.option(
    "--config",
    "config_name",
    default=CONFIG_MAP_NAME,
    show_default=True,
    metavar="NAME",
    help="Name of the ConfigMap with the configuration, in the operator's namespace.",
)

YES: Final = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal."
)


def confirm(question: str) -> None:
    """Ask ``question``, and abort unless it is confirmed. Raises :class:`InvalidInput` without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput(f"{question} Without a terminal, --yes is required")
    click.confirm(question, abort=True)


def not_installed(error: ImportError) -> CommandFailed:
    """Return the error of a command that needs the extra ``embedded``; re-raise ``error`` for any other module.

    In the root of a checkout, the folder ``envtest`` is an empty package: its names are missing, not the module.
    """
    if (error.name or "").partition(".")[0] != "envtest":
        raise error
    return CommandFailed(
        "the embedded control plane is not installed; in a checkout, run: pip install ./envtest '.[embedded]'; "
        "for a release on the package index: pip install 'codeflare-operator[embedded]'"
    )


def configure_logs(log_format: str, level: str) -> None:
    """Write logs in ``log_format`` (``json`` or ``console``)."""
    from cfo.runtime import logs

    if log_format == "json":
        logs.configure("json", level)
    else:
        logs.configure("console", level)


@contextmanager
def log_errors(enabled: bool) -> Iterator[None]:
    """Log the error of the command and exit if ``enabled``, so that every line of a JSON log is JSON."""
    try:
        yield
    except click.ClickException as error:
        if not enabled:
            raise
        import structlog

        problems: Sequence[str] = (error.message,)
        if isinstance(error, InvalidInput):
            problems = error.problems
        for problem in problems:
            structlog.get_logger("cfo").error("Command failed", error=problem)
        raise SystemExit(error.exit_code) from None


def namespace_variable() -> str:
    """Return ``$NAMESPACE``, the operator's namespace; empty if it is not set. Raises :class:`InvalidInput`."""
    from cfo.runtime.objects import is_dns_label

    namespace = os.environ.get("NAMESPACE", "").strip()
    if namespace and not is_dns_label(namespace):
        raise InvalidInput(
            f"NAMESPACE: {namespace!r}: must be the name of a namespace (a lower-case DNS label)"
        )
    return namespace


def execute(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work``, and convert its expected errors into one line and an exit code."""
    from cfo.config.section import ConfigurationError
    from cfo.operator import AddressInUse, ConfigurationUnavailable
    from cfo.runtime import ConfigError
    from cfo.runtime.controller import GracePeriodExceeded, RunnableFailed

    try:
        run_async(work)
    except ConfigurationError as error:
        raise InvalidInput(*map(one_line, error.problems)) from None
    except (ConfigError, ConfigurationUnavailable) as error:
        raise cluster_failure(error, embedded=True) from None
    except (AddressInUse, RunnableFailed, GracePeriodExceeded) as error:
        raise CommandFailed(one_line(error)) from None


def run_with_client(
    kubeconfig: str | None,
    field_manager: str,
    work: Callable[[Client], Coroutine[Any, Any, _T]],
    *,
    context: str | None = None,
    reads_only: bool = False,
) -> _T:
    """Run ``work`` with a client for the cluster in ``kubeconfig``, and convert the errors of requests.

    ``reads_only``: the command can run on the embedded control plane as well, and fails as one that only reads.
    """
    from cfo.runtime import (
        APIError,
        Client,
        ConfigError,
        DiscoveryIncomplete,
        RESTMapper,
        Transport,
        TransportError,
        UnknownKind,
        load_config,
    )

    async def body() -> _T:
        async with Transport(await load_config(kubeconfig, context=context)) as transport:
            return await work(Client(transport, RESTMapper(transport), field_manager=field_manager))

    try:
        return run_async(body)
    except (ConfigError, APIError, TransportError, DiscoveryIncomplete, UnknownKind) as error:
        failure = cluster_failure(error, embedded=reads_only)
        if reads_only:
            raise ClusterUnreadable(failure.message) from None
        raise failure from None
