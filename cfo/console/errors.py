"""The errors of CLI commands: one line on stderr for each problem, and the class determines the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, TypeVar

import click

from cfo.runtime.process import printable, printable_lines

_T = TypeVar("_T")
_MAX_LINE: Final = 10_000


class CommandFailed(click.ClickException):
    """A command failed: prints one line, exit code 1."""

    exit_code = 1

    def format_message(self) -> str:
        """Return the message that :meth:`show` prints."""
        return printable_lines(self.message)


class ClusterUnreadable(CommandFailed):
    """The cluster cannot be reached, its answers cannot be read, or a command can read nothing in it: exit code 3."""

    exit_code = 3


class InvalidInput(click.ClickException):
    """The arguments or the configuration are invalid: prints one line for each problem, exit code 2."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the problems to ``file`` (default: stderr)."""
        for problem in self.problems:
            click.echo(f"Error: {printable_lines(problem)}", file=file or sys.stderr)


@contextmanager
def one_line_usage_errors() -> Iterator[None]:
    """Report wrong arguments in one line instead of click's four; a command without any prints its help."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        raise InvalidInput(one_line(error.format_message()).removesuffix(".") + where) from None


def one_line(message: object) -> str:
    """Return ``message``, for example an exception, as one line of printable characters."""
    return printable(" ".join(str(message).split()), _MAX_LINE)


def echo(line: str, *, err: bool = False) -> None:
    """Print one line to stdout, or to stderr; characters that are not printable are escaped.

    What a cluster sends is printed with this function; only JSON and YAML, which escape by themselves, are not.
    """
    click.echo(printable(line, _MAX_LINE), err=err)


def cluster_failure(error: BaseException, *, embedded: bool = False) -> CommandFailed:
    """Return the error of a command that failed because of the cluster, its kubeconfig or its permissions.

    The message ends with a remedy if no API server is at the address, if its certificate is not trusted, if it does not
    accept the credentials, or if they lack a permission.
    ``embedded``: the command can also run on the embedded control plane, which the message says if there is no API
    server, or no kubeconfig is configured.
    """
    return CommandFailed(one_line(error) + remedy_of(error, embedded=embedded))


_LOG_IN: Final = (
    "; the credentials are wrong or have expired: log in again, and check with kubectl auth whoami"
)
_NO_PERMISSION: Final = " is forbidden: User "
"""In the message of RBAC; those of admission and quotas have the same code."""

_ASK_ADMINISTRATOR: Final = (
    "; ask an administrator of the cluster to run the command, or for this permission"
)
_CHECK_CONTEXT: Final = (
    "that this is the server of the context that you mean: kubectl config view --minify"
)
_CHECK_SERVER: Final = f"; check that the cluster runs, and {_CHECK_CONTEXT}"
_NO_API_SERVER: Final = (
    f"; what responds there is not a Kubernetes API server: check {_CHECK_CONTEXT}"
)
_CHECK_CA: Final = (
    f"; check that certificate-authority in the kubeconfig is its CA, and {_CHECK_CONTEXT}"
)
_RUN_EMBEDDED: Final = "; no cluster available? Try: cfo run --embedded"


def remedy_of(error: BaseException, *, embedded: bool = False) -> str:
    """Return what solves a problem with the cluster, to be added to its message; empty if that is unknown."""
    from ssl import SSLCertVerificationError  # lazily, as what loads the API client

    from cfo.runtime import Forbidden, NotFound, TransportError
    from cfo.runtime.client import NoClusterConfigured, Unauthorized

    run_embedded = _RUN_EMBEDDED if embedded else ""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Unauthorized):
            return _LOG_IN
        if isinstance(cause, Forbidden) and _NO_PERMISSION in cause.message:
            return _ASK_ADMINISTRATOR
        if isinstance(cause, NotFound) and cause.verb == "discover":
            return _NO_API_SERVER + run_embedded
        if isinstance(cause, TransportError) and cause.refused:
            return _CHECK_SERVER + run_embedded
        if isinstance(cause, SSLCertVerificationError):
            return _CHECK_CA
        if isinstance(cause, NoClusterConfigured):
            return run_embedded
        cause = cause.__cause__
    return ""


def run_async(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run ``work``, and return its result; an exception group raises its exception, if all in it have one type."""
    import anyio

    try:
        return anyio.run(work)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(set(map(type, error.exceptions))) == 1:
            error = error.exceptions[0]
        raise error from None
