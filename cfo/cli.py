"""The command line of the operator.

``cfo run | dev | new | crd | status | dashboard | doctor | uninstall | envtest | manifests | migrate |
config | version | more``.

Each error is one line on stderr. The exit code is 2 for invalid arguments or an invalid configuration, 3 if a command
other than ``cfo run`` cannot reach the cluster, and 1 for all other failures. Each command imports its dependencies
lazily, so that ``cfo version``, for example, does not load the API client.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import click

from cfo.console.errors import InvalidInput, one_line_usage_errors
from cfo.console.execution import (
    CONFIG,
    configure_logs,
    execute,
    log_errors,
    namespace_variable,
    not_installed,
    seconds,
)
from cfo.version import __version__

if TYPE_CHECKING:
    from cfo.runtime.webhook import WebhookURL

_READERS: Final = (
    ("Data scientists", ("status", "dashboard"), ()),
    (
        "Administrators",
        ("run", "manifests", "doctor", "config", "uninstall", "migrate"),
        ("version",),
    ),
    ("Operator authors", ("new", "dev"), ("crd", "envtest")),
)
"""For each reader the commands that ``cfo --help`` shows, ten in all, and those that ``cfo more`` shows."""


_OTHER_NAMES: Final[Mapping[str, str]] = {"init": "new", "create": "new"}
"""Commands of kubebuilder and operator-sdk, and what they are called here."""


class _LazyGroup(click.Group):
    """A group whose subcommands, named ``command``, are imported lazily; their short help is here."""

    lazy_commands: ClassVar[dict[str, tuple[str, str]]] = {
        "config": (
            "cfo.console.config_command",
            "Check a configuration, or print the default one.",
        ),
        "crd": ("cfo.console.crd_command", "Print the CRDs of typed resources."),
        "dashboard": (
            "cfo.console.dashboard_command",
            "Show a live page with the state of a cluster.",
        ),
        "dev": (
            "cfo.console.dev.supervisor",
            "Run a program, and restart it when its source changes.",
        ),
        "doctor": (
            "cfo.console.doctor.doctor_command",
            "Check an installation, and print remedies.",
        ),
        "envtest": ("envtest.command", "Serve an embedded control plane."),
        "manifests": ("cfo.console.manifests_command", "Print the installation manifests."),
        "migrate": (
            "cfo.console.migrate.raycluster.migrate_command",
            "Move RayClusters to KubeRay, RHOAI 3 or here.",
        ),
        "new": ("cfo.console.new.project", "Write the project of a new operator."),
        "status": ("cfo.console.status_command", "Show the state of a cluster's workloads."),
        "uninstall": (
            "cfo.console.uninstall.uninstall_command",
            "Uninstall the operator from a cluster.",
        ),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.lazy_commands])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy_commands:
            return super().get_command(ctx, cmd_name)
        from importlib import import_module

        try:
            command: click.Command = import_module(self.lazy_commands[cmd_name][0]).command
        except ImportError as error:
            raise not_installed(error) from None
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from difflib import get_close_matches  # lazily: only for a wrong name

        name = args[0]
        names = self.list_commands(ctx)
        if name in names or name.startswith("-"):
            return super().resolve_command(ctx, args)
        similar = (
            [_OTHER_NAMES[name]] if name in _OTHER_NAMES else get_close_matches(name, names, 1)
        )
        if not similar:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command {name!r}, did you mean {similar[0]!r}?", ctx)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with one_line_usage_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line_usage_errors():  # also those of all commands in groups of their own
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_commands(formatter, {reader: names for reader, names, _ in _READERS})
        formatter.write("\nOther commands: cfo more\n")

    def write_commands(
        self, formatter: click.HelpFormatter, sections: Mapping[str, Sequence[str]]
    ) -> None:
        """Write the commands of each section that has any."""
        texts = {name: command.get_short_help_str() for name, command in self.commands.items()}
        texts |= {name: text for name, (_, text) in self.lazy_commands.items()}
        for title, names in sections.items():
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, texts[name]) for name in names])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def cli() -> None:
    """The CodeFlare operator, and an embedded Kubernetes API server for development and tests."""


@cli.command()
@CONFIG
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
@click.option(
    "--default-config",
    metavar="YAML",
    help="Document with which the ConfigMap is created if it does not exist; by default that of: cfo config default.",
)
@click.option(
    "--dev", is_flag=True, help="Restart the operator when its source changes; for development."
)
@click.option(
    "--embedded", is_flag=True, help="Run on an embedded control plane instead of a cluster."
)
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
    "--until-settled",
    type=seconds,
    metavar="DURATION",
    help="With --embedded: exit when every applied object has settled, and print a table of all; fail after DURATION.",
)
def run(**options: Any) -> None:
    """Run the operator until SIGTERM or SIGINT."""
    if options["dev"]:
        from cfo.console.dev.operator_program import develop

        develop(options)
    elif options["embedded"]:
        _run_embedded(options)
    else:
        _run_on_cluster(options)


_EMBEDDED_OPTIONS: Final = {
    "manifests": "--apply",
    "until_settled": "--until-settled",
}
"""The flags of the options that require ``--embedded``."""


def _run_on_cluster(options: Mapping[str, Any]) -> None:
    for name, flag in _EMBEDDED_OPTIONS.items():
        if options[name]:
            raise InvalidInput(f"{flag} requires --embedded")
    if options["webhook_url"] is not None and options["webhook_cert_dir"] is not None:
        raise InvalidInput("--webhook-url and --webhook-cert-dir cannot be used together")
    from cfo.startup import tune_process

    log_format = options["log_format"] or ("console" if sys.stderr.isatty() else "json")
    with tune_process() as loaded, log_errors(log_format == "json"):
        configure_logs(log_format, options["log_level"])
        url = _checked_url(options["webhook_url"])
        namespace = _own_namespace()

        async def work() -> None:
            from cfo import operator
            from cfo.runtime import NamespacedName, load_config

            await operator.run(
                await load_config(
                    options["kubeconfig"], service_account=_service_account_directory()
                ),
                NamespacedName(namespace, options["config_name"]),
                webhook_url=url,
                webhook_cert_dir=options["webhook_cert_dir"],
                default_configuration=options["default_config"],
                configure_manager=lambda _: loaded(),
            )

        execute(work)


def _run_embedded(options: Mapping[str, Any]) -> None:
    configure_logs(options["log_format"] or "console", options["log_level"])
    try:
        from cfo.console.demo.run import run_embedded
        from cfo.startup import limit_tls_buffers
    except ImportError as error:
        raise not_installed(error) from None
    if options["default_config"] is not None:
        raise InvalidInput("--default-config cannot be used with --embedded; use --apply")
    for name in ("webhook_url", "webhook_cert_dir"):
        if options[name] is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InvalidInput(
                f"{flag} cannot be used with --embedded, which always serves webhooks"
            )
    limit_tls_buffers()
    with log_errors(options["log_format"] == "json"):
        execute(
            partial(
                run_embedded,
                namespace=namespace_variable() or "default",
                config_name=options["config_name"],
                kubeconfig=Path(options["kubeconfig"] or "cfo.kubeconfig"),
                manifests=[Path(path) for path in options["manifests"]],
                until_settled=options["until_settled"],
            )
        )


def _checked_url(text: str | None) -> WebhookURL | None:
    from cfo.runtime.webhook import WebhookURL

    if text is None:
        return None
    try:
        return WebhookURL.parse(text)
    except ValueError as error:
        raise InvalidInput(f"--webhook-url: {error}") from None


def _own_namespace() -> str:
    """Return the operator's namespace: ``$NAMESPACE``, otherwise the namespace of the pod's service account."""
    namespace = namespace_variable()
    if namespace:
        return namespace
    file = _service_account_directory() / "namespace"
    try:
        return file.read_text().strip()
    except OSError:
        raise InvalidInput(
            "cannot determine the operator's namespace: set NAMESPACE, for example: NAMESPACE=default cfo run "
            f"(not running in a pod; {file} does not exist)"
        ) from None


def _service_account_directory() -> Path:
    """Return the directory of a pod's token; ``CFO_SERVICE_ACCOUNT_DIR`` is that of a custom mount."""
    return Path(
        os.environ.get("CFO_SERVICE_ACCOUNT_DIR") or "/var/run/secrets/kubernetes.io/serviceaccount"
    )


@cli.command()
@click.option(
    "--stack",
    is_flag=True,
    help="Also print the versions of the components that this version works with.",
)
def version(stack: bool) -> None:
    """Print the version of the operator."""
    if not stack:
        click.echo(__version__)
        return
    from cfo.manifests.stack import components

    for name, number in components():
        click.echo(f"{name:20} {number}")


@cli.command()
@click.pass_context
def more(ctx: click.Context) -> None:
    """List the commands that are not in the help of cfo."""
    formatter = ctx.make_formatter()
    assert isinstance(cli, _LazyGroup)
    cli.write_commands(formatter, {reader: names for reader, _, names in _READERS})
    click.echo(formatter.getvalue().strip())


def main() -> NoReturn:
    """Run the console script ``cfo``."""
    cli(prog_name="cfo")
    raise SystemExit(0)
