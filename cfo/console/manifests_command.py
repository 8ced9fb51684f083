"""``cfo manifests``: print the manifests of an installation as one YAML stream."""

from __future__ import annotations

import ipaddress
import re

import click
import yaml

from cfo.config.model import OperatorConfiguration
from cfo.console.errors import InvalidInput, echo
from cfo.features import OPTIONAL_ROLES
from cfo.manifests import guardrails
from cfo.manifests.names import DEFAULT_NAMESPACE, default_image
from cfo.manifests.overlays import COMPONENTS, render
from cfo.runtime import Object
from cfo.runtime.objects import is_dns_label
from cfo.version import CONFIG_MAP_NAME

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the emitter in C is several times as fast
_IMAGE = re.compile(r"[\w][\w.:/-]*(@sha256:[0-9a-f]{64})?", re.ASCII)


@click.command("manifests")
@click.option(
    "--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Namespace of the operator."
)
@click.option("--image", default=default_image(), show_default=True, help="Image of the operator.")
@click.option(
    "--with",
    "components",
    type=click.Choice(sorted(COMPONENTS)),
    multiple=True,
    help="Add a component: the role of a feature, certificates from cert-manager, a NetworkPolicy, or Prometheus "
    "monitoring. Repeatable.",
)
@click.option(
    "--api-server-cidr",
    "api_servers",
    multiple=True,
    metavar="CIDR",
    help="With the component network-policy: addresses of API servers; no others can call the webhooks. Repeatable.",
)
@click.option(
    "--tenant",
    metavar="NAMESPACE",
    help="Print what protects a namespace of tenants instead: quota, default requests, NetworkPolicies, Pod Security "
    "admission, and the policy of the component reserved-hosts.",
)
def command(
    namespace: str,
    image: str,
    components: tuple[str, ...],
    api_servers: tuple[str, ...],
    tenant: str | None,
) -> None:
    """Print the manifests that install the operator.

    To install it, pipe them into: kubectl apply --server-side -f -
    """
    if tenant is not None:
        if not is_dns_label(tenant):
            raise InvalidInput(f"--tenant: {tenant!r}: must be a lower-case DNS label")
        if components or api_servers:
            raise InvalidInput("--tenant: must not be combined with --with or --api-server-cidr")
        _print(guardrails.render(tenant))
        return
    if not is_dns_label(namespace):
        raise InvalidInput(f"--namespace: {namespace!r}: must be a lower-case DNS label")
    if not _IMAGE.fullmatch(image):
        raise InvalidInput(f"--image: {image!r}: must be an image reference")
    if api_servers and "network-policy" not in components:
        raise InvalidInput("--api-server-cidr: requires --with network-policy")
    for cidr in api_servers:
        try:
            ipaddress.ip_network(cidr)
        except ValueError:
            raise InvalidInput(
                f"--api-server-cidr: {cidr!r}: must be a CIDR such as 192.0.2.0/28"
            ) from None
    unused = [
        role.name
        for role in OPTIONAL_ROLES
        if role.name in components and not role.is_enabled(OperatorConfiguration())
    ]
    if unused:
        where = f"the ConfigMap {CONFIG_MAP_NAME} has to enable what uses them"
        echo(
            f"Note: --with {', '.join(unused)} adds permissions; {where}, which is off by default",
            err=True,
        )
    _print(render(namespace, image, components, api_servers))


def _print(objects: list[Object]) -> None:
    click.echo(yaml.dump_all(objects, Dumper=_DUMPER, sort_keys=False, width=120), nl=False)
