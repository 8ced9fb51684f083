"""The command line of the operator.

``cfo run | dev | new | crd | status | dashboard | doctor | handlers | uninstall | envtest | manifests | migrate |
plan | config | version``.

Each error is one line on stderr. The exit code is 2 for invalid arguments or an invalid configuration, and 1 for all
other failures, such as an unreachable cluster or a crash. Each command imports its dependencies lazily, so that ``cfo
version``, for example, does not load the API client.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import click

from cfo.console.errors import CommandFailed, InvalidInput, cluster_failure, one_line
from cfo.version import __version__

if TYPE_CHECKING:
    from cfo.runtime.webhook import WebhookURL

__all__ = ["main"]

SERVICE_ACCOUNT_DIRECTORY = Path(
    os.environ.get("CFO_SERVICE_ACCOUNT_DIR") or "/var/run/secrets/kubernetes.io/serviceaccount"
)
"""The directory of a pod's token. ``CFO_SERVICE_ACCOUNT_DIR`` overrides it, for tests and for custom mounts."""


def _not_installed(error: ModuleNotFoundError) -> CommandFailed:
    """Return the error of a command that needs the extra ``embedded``; re-raise ``error`` for any other module."""
    if (error.name or "").partition(".")[0] != "envtest":
        raise error
    # not `pip install 'cfo[embedded]'`: the package index has an unrelated package of this name
    return CommandFailed(
        "the embedded control plane is not installed; in a checkout, run: pip install ./envtest '.[embedded]'"
    )


class _LazyGroup(click.Group):
    """A group whose subcommands are imported lazily; their short help is duplicated here."""

    lazy_commands: ClassVar[dict[str, tuple[str, str]]] = {
        "config": ("cfo.console.config_command:command", "Check a configuration, or print the default one."),
        "crd": ("cfo.console.crd_command:command", "Print the CRDs of typed resources."),
        "dashboard": (
            "cfo.console.dashboard.dashboard_command:command",
            "Show a live page with the state of a cluster.",
        ),
        "dev": ("cfo.console.dev.dev_command:command", "Run a program, and restart it when its source changes."),
        "doctor": ("cfo.console.doctor.doctor_command:command", "Check an installation, and print remedies."),
        "envtest": ("envtest.command:command", "Serve an embedded control plane."),
        "handlers": ("cfo.runtime.handlers.command:command", "Run operators written with kopf's decorators."),
        "manifests": ("cfo.console.manifests_command:command", "Print the installation manifests."),
        "migrate": ("cfo.console.migrate.migrate_command:command", "Move RayClusters to KubeRay, RHOAI 3 or here."),
        "new": ("cfo.console.new.new_command:command", "Write the project of a new operator."),
        "plan": ("cfo.console.plan.plan_command:command", "Show what a change of InferenceStacks alters."),
        "status": ("cfo.console.status.status_command:command", "Show the state of a cluster's workloads."),
        "uninstall": ("cfo.console.uninstall_command:command", "Uninstall the operator from a cluster."),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.lazy_commands])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy_commands:
            return super().get_command(ctx, cmd_name)
        from importlib import import_module

        module, _, attribute = self.lazy_commands[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {name: command.get_short_help_str() for name, command in self.commands.items()}
        rows |= {name: text for name, (_, text) in self.lazy_commands.items()}
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
    help="Name of the ConfigMap with the configuration, in the operator's namespace.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Path of the kubeconfig; by default $KUBECONFIG, then ~/.kube/config, then the pod's service account. With "
    "--embedded: output path for the kubeconfig of the embedded control plane; by default cfo.kubeconfig.",
)
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default=None,
    help="Log format; by default console on a terminal, otherwise json.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Minimum level of log messages.",
)
@click.option(
    "--webhook-url",
    metavar="https://HOST:PORT",
    help="Serve the admission webhooks from outside the cluster: listen on PORT, and set this URL in the webhook "
    "configurations. On exit, the webhook configurations are restored.",
)
@click.option(
    "--webhook-cert-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Serve the admission webhooks with tls.crt and tls.key in DIR, which cert-manager or OLM mounts there, "
    "and let it inject the CA bundle as well. Overrides the ConfigMap.",
)
@click.option("--dev", is_flag=True, help="Restart the operator when its source changes; for development.")
@click.option("--embedded", is_flag=True, help="Run on an embedded control plane instead of a cluster.")
@click.option(
    "--apply",
    "manifests",
    multiple=True,
    type=click.Path(exists=True),
    metavar="PATH",
    help="With --embedded: apply the manifests in this file or directory. Repeatable. The operator starts with its "
    "ConfigMap, if that is one of them.",
)
@click.option(
    "--overview",
    is_flag=True,
    help="With --embedded: show the objects of each RayCluster and the phase of each AppWrapper.",
)
@click.option(
    "--until-settled",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --embedded: exit when every applied RayCluster has all its objects and every applied AppWrapper has "
    "succeeded; fail after SECONDS.",
)
def run(
    config_name: str,
    kubeconfig: str | None,
    log_format: str | None,
    log_level: str,
    webhook_url: str | None,
    webhook_cert_dir: Path | None,
    dev: bool,
    embedded: bool,
    manifests: tuple[str, ...],
    overview: bool,
    until_settled: float | None,
) -> None:
    """Run the operator until SIGTERM, SIGINT or SIGHUP."""
    if dev:
        _develop(click.get_current_context().params)
        return
    if embedded:
        _configure_logs(log_format or "console", log_level)
        try:
            from cfo.console.demo.run import DemoFailed, InvalidDemoInput, run_embedded
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None

        if webhook_url is not None:
            raise InvalidInput("--webhook-url cannot be used with --embedded, which always serves webhooks")
        if webhook_cert_dir is not None:
            raise InvalidInput("--webhook-cert-dir cannot be used with --embedded, which always serves webhooks")
        with _log_errors(log_format == "json"):
            _execute(
                run_embedded(
                    namespace=_checked_namespace(os.environ.get("NAMESPACE", "").strip() or "default"),
                    config_name=config_name,
                    kubeconfig=Path(kubeconfig or "cfo.kubeconfig"),
                    manifests=[Path(path) for path in manifests],
                    overview=overview,
                    until_settled=until_settled,
                ),
                invalid=InvalidDemoInput,
                failed=DemoFailed,
            )
        return
    for given, flag in ((manifests, "--apply"), (overview, "--overview"), (until_settled, "--until-settled")):
        if given:
            raise InvalidInput(f"{flag} requires --embedded")
    if webhook_url is not None and webhook_cert_dir is not None:
        raise InvalidInput("--webhook-url and --webhook-cert-dir cannot be used together")
    from cfo.startup import tune_process

    log_format = log_format or ("console" if sys.stderr.isatty() else "json")
    with tune_process() as loaded, _log_errors(log_format == "json"):
        _configure_logs(log_format, log_level)
        url = _checked_url(webhook_url)
        _execute(_run_on_cluster(_own_namespace(), config_name, kubeconfig, url, webhook_cert_dir, loaded))


def _develop(options: dict[str, Any]) -> None:
    """Run the operator as a supervised program with the options of ``cfo run``."""
    if options["overview"] or options["until_settled"]:
        raise InvalidInput("--overview and --until-settled cannot be used with --dev")
    try:
        from cfo.console.dev.operator_program import new_supervisor, run_embedded
    except ModuleNotFoundError as error:
        raise _not_installed(error) from None

    def report(line: str) -> None:
        click.secho(f"dev: {line}", err=True, fg="cyan")

    arguments = ["--log-level", options["log_level"]]
    log_format = options["log_format"] or ("console" if options["embedded"] else None)
    arguments += ["--log-format", log_format] if log_format else []
    if not options["embedded"]:
        if options["manifests"]:
            raise InvalidInput("--apply requires --embedded")
        for name in ("config_name", "kubeconfig", "webhook_url", "webhook_cert_dir"):
            flag = "--config" if name == "config_name" else f"--{name.replace('_', '-')}"
            arguments += [flag, str(options[name])] if options[name] is not None else []
        _execute(new_supervisor(arguments, report).run())
        return
    if options["webhook_url"] or options["webhook_cert_dir"]:
        raise InvalidInput("--webhook-url and --webhook-cert-dir cannot be used with --embedded")
    try:
        from cfo.console.demo.run import InvalidDemoInput
        from cfo.runtime import NamespacedName
    except ModuleNotFoundError as error:
        raise _not_installed(error) from None
    namespace = _checked_namespace(os.environ.get("NAMESPACE", "").strip() or "default")
    _configure_logs(options["log_format"] or "console", "warning")
    _execute(
        run_embedded(
            arguments,
            key=NamespacedName(namespace, options["config_name"]),
            kubeconfig=Path(options["kubeconfig"] or "cfo.kubeconfig"),
            manifests=[Path(path) for path in options["manifests"]],
            report=report,
        ),
        invalid=InvalidDemoInput,
    )


def _configure_logs(log_format: str, level: str) -> None:
    from cfo.runtime import logs

    logs.configure("json" if log_format == "json" else "console", level)


@contextmanager
def _log_errors(enabled: bool) -> Iterator[None]:
    """Log the error of the command and exit if ``enabled``, so that every line of a JSON log is JSON."""
    try:
        yield
    except click.ClickException as error:
        if not enabled:
            raise
        import structlog

        for problem in error.problems if isinstance(error, InvalidInput) else (error.message,):
            structlog.get_logger("cfo").error("Command failed", error=problem)
        raise SystemExit(error.exit_code) from None


async def _run_on_cluster(
    namespace: str,
    config_name: str,
    kubeconfig: str | None,
    webhook_url: WebhookURL | None,
    webhook_cert_dir: Path | None,
    loaded: Callable[[], None],
) -> None:
    from cfo import operator
    from cfo.runtime import NamespacedName, load_config

    target = await load_config(kubeconfig, service_account=SERVICE_ACCOUNT_DIRECTORY)
    await operator.run(
        target,
        NamespacedName(namespace, config_name),
        webhook_url=webhook_url,
        webhook_cert_dir=webhook_cert_dir,
        configure_manager=lambda _: loaded(),
    )


def _checked_url(text: str | None) -> WebhookURL | None:
    from cfo.runtime.webhook import WebhookURL

    try:
        return WebhookURL.parse(text) if text is not None else None
    except ValueError as error:
        raise InvalidInput(f"--webhook-url: {error}") from None


def _own_namespace() -> str:
    """Return the operator's namespace: ``$NAMESPACE``, otherwise the namespace of the pod's service account."""
    if namespace := os.environ.get("NAMESPACE", "").strip():
        return _checked_namespace(namespace)
    try:
        return (SERVICE_ACCOUNT_DIRECTORY / "namespace").read_text().strip()
    except OSError:
        raise InvalidInput(
            "cannot determine the operator's namespace: set NAMESPACE, for example: NAMESPACE=default cfo run "
            f"(not running in a pod; {SERVICE_ACCOUNT_DIRECTORY / 'namespace'} does not exist)"
        ) from None


def _checked_namespace(namespace: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace):
        raise InvalidInput(f"NAMESPACE: {namespace!r}: must be the name of a namespace (a lower-case DNS label)")
    return namespace


def _execute(
    work: Awaitable[None], *, invalid: type[Exception] = InvalidInput, failed: type[Exception] = CommandFailed
) -> None:
    """Run ``work``, and convert its expected errors into one line and an exit code.

    ``invalid`` and ``failed`` are additional exceptions that ``work`` raises; their exit codes are 2 and 1.
    """
    import anyio

    from cfo.config import ConfigurationError
    from cfo.operator import AddressInUse, ConfigurationUnavailable
    from cfo.runtime import ConfigError
    from cfo.runtime.controller import GracePeriodExceeded, RunnableFailed

    async def body() -> None:
        await work

    try:
        try:
            anyio.run(body)
        except BaseExceptionGroup as group:
            raise _unwrap_group(group) from None
    except ConfigurationError as error:
        raise InvalidInput(*map(one_line, error.problems)) from None
    except invalid as error:
        raise InvalidInput(one_line(error)) from None
    except (ConfigError, ConfigurationUnavailable) as error:
        raise cluster_failure(error, embedded=True) from None
    except (AddressInUse, RunnableFailed, GracePeriodExceeded, failed) as error:
        raise CommandFailed(one_line(error)) from None


def _unwrap_group(error: BaseException) -> BaseException:
    """Return the only exception in nested exception groups; a group with several exceptions is returned unchanged."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@cli.command()
@click.option("--stack", is_flag=True, help="Also print the versions of the components that this version works with.")
def version(stack: bool) -> None:
    """Print the version of the operator."""
    if not stack:
        click.echo(__version__)
        return
    from cfo.manifests.stack import components

    for name, number in components():
        click.echo(f"{name:20} {number}")


def main() -> NoReturn:
    """Run the console script ``cfo``."""
    cli(prog_name="cfo")
    raise SystemExit(0)
