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
    from cfo.runtime import Client, ClientConfig, Transport

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


READ_LIMIT: Final = 300.0
"""Seconds for all that a command reads before it changes anything, of which each request has a limit of its own."""

_MAX_RESPONSE_BYTES: Final = 64 << 20
"""The size of one response that commands read: more than any page of a list, and than the kinds of a large cluster."""


def command_transport(config: ClientConfig) -> Transport:
    """Return the transport of a command, which does not read responses without end."""
    from cfo.runtime import Transport

    return Transport(config, max_response_bytes=_MAX_RESPONSE_BYTES)


def run_with_client(
    kubeconfig: str | None,
    field_manager: str,
    work: Callable[[Client], Coroutine[Any, Any, _T]],
    *,
    context: str | None = None,
    reads_only: bool = False,
    limit: float | None = None,
) -> _T:
    """Run ``work`` with a client for the cluster in ``kubeconfig``, and convert errors with :func:`cluster_errors`.

    ``reads_only``: the command can run on the embedded control plane as well, and fails as one that only reads.
    ``limit``: the seconds for the whole ``work``; ``None`` if it uses :func:`time_limit` for its parts.
    """
    from cfo.runtime import Client, RESTMapper, load_config

    async def body() -> _T:
        config = await load_config(kubeconfig, context=context)
        async with command_transport(config) as transport:
            client = Client(transport, RESTMapper(transport), field_manager=field_manager)
            if limit is None:
                return await work(client)
            with time_limit(limit):
                return await work(client)

    with cluster_errors(reads_only=reads_only, embedded=reads_only):
        return run_async(body)


@contextmanager
def cluster_errors(*, reads_only: bool, embedded: bool = False) -> Iterator[None]:
    """Convert the errors of a command that uses a cluster into one line and an exit code.

    It is 3 if the cluster cannot be reached or its answers cannot be read, and with ``reads_only`` for all errors;
    otherwise 1. ``embedded``: see :func:`.cluster_failure`.
    """
    from msgspec import MsgspecError

    from cfo.api.reading import MALFORMED
    from cfo.config.section import ConfigurationError
    from cfo.runtime import APIError, ConfigError, DiscoveryIncomplete, TransportError, UnknownKind
    from cfo.runtime.client import InvalidName, Unauthorized
    from cfo.runtime.process import UnreadableObject

    try:
        yield
    except (ConfigError, TransportError, DiscoveryIncomplete, Unauthorized) as error:
        raise ClusterUnreadable(cluster_failure(error, embedded=embedded).message) from None
    except (APIError, UnknownKind) as error:
        failure = cluster_failure(error, embedded=embedded)
        if reads_only:
            raise ClusterUnreadable(failure.message) from None
        raise failure from None
    except InvalidName as error:
        raise InvalidInput(one_line(error)) from None
    except ConfigurationError:
        raise  # a ValueError, but not because of what the API server answers
    except (*MALFORMED, MsgspecError, UnreadableObject) as error:
        problem = one_line(f"{type(error).__name__}: {error}")
        raise ClusterUnreadable(f"cannot read what the API server answers: {problem}") from None


@contextmanager
def time_limit(limit: float) -> Iterator[None]:
    """Raise :class:`ClusterUnreadable` if what the block does takes longer than ``limit`` seconds.

    Each request has a limit of its own, but an API server can let a list have pages without end.
    """
    import anyio

    with anyio.move_on_after(limit) as scope:
        yield
    if scope.cancelled_caught:
        raise ClusterUnreadable(f"the API server has not answered everything within {limit:g} s")
