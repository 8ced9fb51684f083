"""The command line: ``cfo run | uninstall | envtest | manifests | config | version``.

A mistake in how it is called, or in the configuration, is one line on stderr and exit code 2; what goes wrong
outside (no cluster, a crash) is one line and exit code 1. Everything that a command needs is imported when it
runs: ``cfo version`` loads no client.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import click

from cfo.version import __version__

if TYPE_CHECKING:
    from cfo.runtime.webhook.options import WebhookURL

__all__ = ["main"]

SERVICE_ACCOUNT = Path(os.environ.get("CFO_SERVICE_ACCOUNT_DIR") or "/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token; another place for tests, and for pods that mount it themselves."""


class Failure(click.ClickException):
    """Something outside went wrong: one line, exit code 1."""

    exit_code = 1


class Misuse(click.ClickException):
    """The command line or the configuration cannot be used: one line, exit code 2."""

    exit_code = 2


def _not_installed(error: ModuleNotFoundError) -> Failure:
    """The failure of a command that needs the extra ``embedded``; any other missing module is raised as it is."""
    if (error.name or "").partition(".")[0] not in {"envtest", "rich"}:
        raise error
    return Failure("the embedded control plane is not installed: pip install 'cfo[embedded]'")


class _LazyGroup(click.Group):
    """Imports a subcommand of another package only when it is run; its line in the list of commands stands here."""

    lazy: ClassVar[dict[str, tuple[str, str]]] = {
        "envtest": ("envtest.command:command", "Serve an embedded control plane."),
        "manifests": ("cfo.manifests.command:command", "Print what installs the operator."),
        "uninstall": ("cfo.manifests.uninstall:command", "Remove the operator from a cluster."),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.lazy])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        from importlib import import_module

        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {name: command.get_short_help_str() for name, command in self.commands.items()}
        rows |= {name: text for name, (_, text) in self.lazy.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def cli() -> None:
    """The CodeFlare operator, and an embedded Kubernetes API server for development and tests."""


@cli.command()
@click.option(
    "--config",
    "config_name",
    default="codeflare-operator-config",
    show_default=True,
    metavar="NAME",
    help="The ConfigMap with the configuration, in the operator's namespace.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Credentials; else $KUBECONFIG, ~/.kube/config, the service account. With --embedded: where the "
    "embedded control plane's kubeconfig is written.",
)
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default=None,
    help="For people or for machines; console on a terminal, else json.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--webhook-url",
    metavar="https://HOST:PORT",
    help="Serve the admission webhooks from outside of the cluster: listen on PORT, and let the API server call HOST. "
    "What the webhook configurations said before is put back on exit.",
)
@click.option(
    "--webhook-cert-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Serve the webhooks with tls.crt and tls.key from DIR, where cert-manager or OLM mounts them and tells the "
    "API server whom to trust; whatever the ConfigMap says.",
)
@click.option("--embedded", is_flag=True, help="Run on an embedded control plane instead of a cluster.")
@click.option(
    "--apply",
    "manifests",
    multiple=True,
    type=click.Path(exists=True),
    metavar="PATH",
    help="With --embedded: apply these manifests (a file, or a folder of them). Repeatable.",
)
@click.option(
    "--overview",
    is_flag=True,
    help="With --embedded: show what each RayCluster got, and where each AppWrapper is.",
)
@click.option(
    "--until-settled",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --embedded: end when every applied RayCluster has all it should get and every AppWrapper succeeded; "
    "fail after SECONDS.",
)
def run(
    config_name: str,
    kubeconfig: str | None,
    log_format: str | None,
    log_level: str,
    webhook_url: str | None,
    webhook_cert_dir: Path | None,
    embedded: bool,
    manifests: tuple[str, ...],
    overview: bool,
    until_settled: float | None,
) -> None:
    """Run the operator until SIGTERM or SIGINT."""
    if embedded:
        _configure_logs(log_format or "console", log_level)
        try:
            from cfo.demo.run import DemoFailed, DemoMisuse, run_embedded
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None

        if webhook_url is not None:
            raise Misuse("--webhook-url is for a cluster; with --embedded webhooks are served anyway")
        if webhook_cert_dir is not None:
            raise Misuse("--webhook-cert-dir is for a cluster; with --embedded webhooks are served anyway")
        _execute(
            run_embedded(
                namespace=_checked_namespace(os.environ.get("NAMESPACE", "").strip() or "default"),
                config_name=config_name,
                kubeconfig=Path(kubeconfig or "cfo.kubeconfig"),
                manifests=[Path(path) for path in manifests],
                overview=overview,
                until_settled=until_settled,
            ),
            misuse=DemoMisuse,
            failure=DemoFailed,
        )
        return
    for given, flag in ((manifests, "--apply"), (overview, "--overview"), (until_settled, "--until-settled")):
        if given:
            raise Misuse(f"{flag} needs --embedded")
    if webhook_url is not None and webhook_cert_dir is not None:
        raise Misuse("--webhook-url and --webhook-cert-dir: give one of them")
    from cfo.startup import starting

    with starting() as loaded:
        _configure_logs(log_format or ("console" if sys.stderr.isatty() else "json"), log_level)
        url = _checked_url(webhook_url)
        _execute(_run_on_cluster(_own_namespace(), config_name, kubeconfig, url, webhook_cert_dir, loaded))


def _configure_logs(log_format: str, level: str) -> None:
    from cfo.runtime import logs

    logs.configure("json" if log_format == "json" else "console", level)


async def _run_on_cluster(
    namespace: str,
    config_name: str,
    kubeconfig: str | None,
    webhook_url: WebhookURL | None,
    webhook_cert_dir: Path | None,
    loaded: Callable[[], None],
) -> None:
    from cfo import operator
    from cfo.runtime.client.config import load_config
    from cfo.runtime.objects import NamespacedName

    target = await load_config(kubeconfig, service_account=SERVICE_ACCOUNT)
    await operator.run(
        target,
        NamespacedName(namespace, config_name),
        webhook_url=webhook_url,
        webhook_cert_dir=webhook_cert_dir,
        observe=lambda _: loaded(),
    )


def _checked_url(text: str | None) -> WebhookURL | None:
    from cfo.runtime.webhook.options import WebhookURL

    try:
        return WebhookURL.parse(text) if text is not None else None
    except ValueError as error:
        raise Misuse(f"--webhook-url: {error}") from None


def _own_namespace() -> str:
    """The operator's namespace: ``$NAMESPACE``, else that of the service account that it runs as."""
    if namespace := os.environ.get("NAMESPACE", "").strip():
        return _checked_namespace(namespace)
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        raise Misuse(
            "the operator's namespace is not known: set NAMESPACE, as in: NAMESPACE=default cfo run "
            f"(not in a pod either: there is no {SERVICE_ACCOUNT / 'namespace'})"
        ) from None


def _checked_namespace(namespace: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace):
        raise Misuse(f"NAMESPACE: {namespace!r}: must be the name of a namespace (a lower-case DNS label)")
    return namespace


def _execute(work: Awaitable[None], *, misuse: type[Exception] = Misuse, failure: type[Exception] = Failure) -> None:
    """Runs ``work``, and turns what may go wrong in it into one line and an exit code.

    ``misuse`` and ``failure`` are errors of the work's own, which mean exit codes 2 and 1.
    """
    import anyio

    from cfo.config import ConfigurationError
    from cfo.operator import Unreachable
    from cfo.runtime.client.config import ConfigError
    from cfo.runtime.manager import GracePeriodExceeded, RunnableFailed

    async def body() -> None:
        await work

    try:
        try:
            anyio.run(body)
        except BaseExceptionGroup as group:
            raise _only(group) from None
    except (ConfigurationError, misuse) as error:
        raise Misuse(_line(error)) from None
    except (ConfigError, Unreachable) as error:
        raise Failure(f"{_line(error)}; no cluster at hand? Try: cfo run --embedded") from None
    except (RunnableFailed, GracePeriodExceeded, failure) as error:
        raise Failure(_line(error)) from None


def _only(error: BaseException) -> BaseException:
    """What stands alone in groups of exceptions, else the group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


@cli.group()
def config() -> None:
    """Look at configuration documents."""


@config.command("default")
def config_default() -> None:
    """Print the default configuration."""
    from cfo.config import default_document

    click.echo(default_document(), nl=False)


@config.command("check")
@click.argument("file", type=click.File("r"))
def config_check(file: Any) -> None:
    """Check the configuration FILE (- for standard input): a document, or the ConfigMap that holds it."""
    from cfo.config import ConfigurationError, extract_document, parse

    try:
        parsed = parse(extract_document(file.read()))
    except UnicodeDecodeError:
        raise Misuse(f"{file.name}: is no text") from None
    except ConfigurationError as error:
        raise Misuse(f"{file.name}: {_line(error)}") from None
    for warning in parsed.warnings:
        click.echo(f"{file.name}: {warning}", err=True)


@cli.command()
@click.option("--stack", is_flag=True, help="Also the versions of what it is made to work with.")
def version(stack: bool) -> None:
    """Print the version."""
    if not stack:
        click.echo(__version__)
        return
    from cfo.manifests.stack import components

    for name, number in components():
        click.echo(f"{name:20} {number}")


def main() -> NoReturn:
    """The console script."""
    cli(prog_name="cfo")
    raise SystemExit(0)
