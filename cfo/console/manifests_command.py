"""``cfo manifests``: print the manifests of an installation as one YAML stream."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import click
import yaml
from click.core import ParameterSource

from cfo.config.document import parse
from cfo.config.model import OperatorConfiguration
from cfo.config.network import CIDR
from cfo.config.section import ConfigurationError
from cfo.console.errors import InvalidInput, echo
from cfo.features import OPTIONAL_ROLES
from cfo.manifests import guardrails
from cfo.manifests.additional import FIRST_ONLY, configuration, note
from cfo.manifests.names import DEFAULT_NAMESPACE, default_image
from cfo.manifests.overlays import COMPONENTS, render, render_roles
from cfo.runtime import Object
from cfo.runtime.objects import is_dns_label, is_quantity, parse_quantity
from cfo.version import CONFIG_MAP_NAME

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the emitter in C is several times as fast
_IMAGE = re.compile(
    r"(\w[\w.-]*(:[0-9]{1,5})?/)?[a-z0-9][a-z0-9._/-]*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
"""An image: registry with port, name, tag and digest."""


@click.command("manifests")
@click.option(
    "--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Namespace of the operator."
)
@click.option(
    "--additional",
    is_flag=True,
    help="Print an additional operator for a cluster that has one, which keeps what it has; requires --namespace, and "
    "--watch-namespace or --label-selector. Without it, manifests for another namespace move the installation.",
)
@click.option(
    "--watch-namespace",
    "watch_namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="A namespace whose objects the operator reconciles; if given, it has no permissions for those in others. "
    "Repeatable.",
)
@click.option(
    "--label-selector",
    metavar="SELECTOR",
    help="With --additional: the labels of the objects that it reconciles.",
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
    "--roles-only",
    is_flag=True,
    help="Print only the roles of the components in --with, and their bindings: for an operator that runs outside the "
    "cluster, which the other manifests would replace.",
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
    "tenants",
    multiple=True,
    metavar="NAMESPACE",
    help="Print a namespace of tenants, which is created if it does not exist, and what protects it: quota, default "
    "requests, NetworkPolicies, Pod Security admission, and the policy of the component reserved-hosts, which is for "
    "the whole cluster. Nothing of the operator is printed. Repeatable.",
)
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --tenant: another number of the quota, such as pods=500; what is not named has the default. Repeatable.",
)
@click.pass_context
def command(
    ctx: click.Context,
    namespace: str,
    additional: bool,
    watch_namespaces: tuple[str, ...],
    label_selector: str | None,
    image: str,
    components: tuple[str, ...],
    roles_only: bool,
    api_servers: tuple[str, ...],
    tenants: tuple[str, ...],
    quotas: tuple[str, ...],
) -> None:
    """Print the manifests that install the operator.

    To install it, pipe them into: kubectl apply --server-side -f -
    """
    has_image = ctx.get_parameter_source("image") is ParameterSource.COMMANDLINE
    if tenants:
        others = (components, api_servers, additional, roles_only, watch_namespaces)
        if any(others) or label_selector or has_image:
            raise InvalidInput(
                "--tenant: must not be combined with --with, --api-server-cidr, --additional, --roles-only, "
                "--watch-namespace, --label-selector or --image"
            )
        for tenant in tenants:
            _check_tenant(tenant, namespace)
        _print(guardrails.render(tuple(dict.fromkeys(tenants)), _adapted(quotas)))
        return
    if quotas:
        raise InvalidInput("--quota: requires --tenant")
    if not is_dns_label(namespace):
        raise InvalidInput(f"--namespace: {namespace!r}: must be a lower-case DNS label")
    watch_namespaces = tuple(dict.fromkeys(watch_namespaces))
    _check_watched(watch_namespaces)
    if roles_only:
        if has_image or label_selector or api_servers:
            raise InvalidInput(
                "--roles-only: must not be combined with --image, --label-selector or --api-server-cidr, which change "
                "no role"
            )
        _check_roles(components)
        if additional and not watch_namespaces:
            echo(f"Note: {_WHOLE_CLUSTER_NOTE}", err=True)
        roles = render_roles(
            namespace,
            components,
            is_additional=additional,
            watch_namespaces=watch_namespaces,
        )
        _print(roles)
        return
    if not _IMAGE.fullmatch(image):
        raise InvalidInput(
            f"--image: {image!r}: must be an image reference, such as registry.example/cfo:v1.0.0, or with @sha256: "
            "and 64 hexadecimal digits"
        )
    if api_servers and "network-policy" not in components:
        raise InvalidInput("--api-server-cidr: requires --with network-policy")
    for cidr in api_servers:
        try:
            CIDR.parse(cidr)
        except ValueError as error:
            raise InvalidInput(f"--api-server-cidr: {cidr!r}: {error}") from None
    part: dict[str, Any] | None = None
    if additional:
        has_namespace = ctx.get_parameter_source("namespace") is ParameterSource.COMMANDLINE
        if not has_namespace or namespace == DEFAULT_NAMESPACE:
            raise InvalidInput(
                "--additional: requires --namespace with one that has no operator: not that of the first one, which is "
                f"{DEFAULT_NAMESPACE} by default"
            )
        part = _part(watch_namespaces, label_selector)
        _check_additional(part, components)
    elif label_selector:
        raise InvalidInput(
            "--label-selector: requires --additional; the first operator has this setting in the ConfigMap "
            f"{CONFIG_MAP_NAME}"
        )
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
    if part is not None:
        echo(f"Note: {note(part)}", err=True)
    if "network-policy" in components and "prometheus" in components:
        echo(f"Note: {_SCRAPER_NOTE}", err=True)
    if watch_namespaces:
        echo(f"Note: {_scope_note(namespace, watch_namespaces)}", err=True)
    if ctx.get_parameter_source("image") is ParameterSource.DEFAULT:
        echo(
            f"Note: the image is {image}, the default: check that its registry has it, and that the tag is not one of "
            "the Go operator, whose images have the same name; or set --image",
            err=True,
        )
    _print(render(namespace, image, components, api_servers, part, watch_namespaces))


_SCRAPER_NOTE: Final = (
    "the NetworkPolicy admits scrapes only from namespaces with the label metrics=enabled: kubectl label namespace "
    "PROMETHEUS metrics=enabled"
)
_WHOLE_CLUSTER_NOTE: Final = (
    "the roles are for the whole cluster, as an operator with only a label selector needs them: for one with "
    "watchNamespaces, add --watch-namespace for each of them"
)


def _adapted(quotas: Iterable[str]) -> dict[str, str]:
    """Return the numbers in ``--quota``; raise :class:`InvalidInput` for one that no ResourceQuota can have."""
    found: dict[str, str] = {}
    for given in quotas:
        name, separator, value = given.partition("=")
        if not separator:
            raise InvalidInput(f"--quota: {given!r:.200}: must be KEY=VALUE, such as pods=500")
        if not guardrails.is_quota_name(name):
            raise InvalidInput(
                f"--quota: {name!r:.200}: must be a key of the printed ResourceQuota, or begin with requests., limits. "
                "or count/"
            )
        if name in found:
            raise InvalidInput(f"--quota: {name!r:.200}: must be given once")
        if not is_quantity(value) or parse_quantity(value) < 0:
            raise InvalidInput(
                f"--quota: {name}: {value!r:.200}: must be a quantity of 0 or more, such as 500 or 64Gi"
            )
        found[name] = value
    return found


def _check_watched(namespaces: Sequence[str]) -> None:
    """Raise :class:`InvalidInput` if the configuration cannot have ``namespaces`` as ``watchNamespaces``."""
    try:
        parse(yaml.safe_dump({"watchNamespaces": [*namespaces]}))
    except ConfigurationError as error:
        raise InvalidInput(f"--watch-namespace: {error}") from None


def _part(watch_namespaces: Sequence[str], label_selector: str | None) -> dict[str, Any]:
    """Return the settings that select the objects of an additional operator."""
    part: dict[str, Any] = {}
    if watch_namespaces:
        part["watchNamespaces"] = list(watch_namespaces)
    if label_selector:
        part["labelSelector"] = label_selector
    return part


def _scope_note(namespace: str, watch_namespaces: Sequence[str]) -> str:
    """Return what the configuration of an operator with permissions in some namespaces must have."""
    return (
        f"the permissions are only for {', '.join(watch_namespaces)}, which must exist: if the ConfigMap "
        f"{namespace}/{CONFIG_MAP_NAME} exists, its watchNamespaces must name no others"
    )


def _check_roles(components: Collection[str]) -> None:
    """Raise :class:`InvalidInput` unless all of ``components``, of which there must be one, are roles."""
    roles = [role.name for role in OPTIONAL_ROLES]
    others = sorted(set(components).difference(roles))
    if others or not components:
        found = ", ".join(others) or "no component"
        raise InvalidInput(
            f"--roles-only: --with: {found}: must name components with a role: {', '.join(sorted(roles))}"
        )


def _is_of_the_system(namespace: str) -> bool:
    """Return whether Kubernetes or OpenShift reserves the name of ``namespace``."""
    return namespace == "openshift" or namespace.startswith(("kube-", "openshift-"))


def _check_additional(part: Mapping[str, Any], components: Iterable[str]) -> None:
    """Raise :class:`InvalidInput` if an additional operator cannot have these options."""
    if not part:
        raise InvalidInput(
            "--additional: requires --watch-namespace or --label-selector: no two operators may reconcile an object"
        )
    for name in components:
        if name in FIRST_ONLY:
            raise InvalidInput(f"--with {name}: only for the first operator, not with --additional")
    try:
        parse(yaml.safe_dump(configuration(part)))
    except ConfigurationError as error:
        raise InvalidInput(f"--additional: {error}") from None


def _check_tenant(tenant: str, namespace: str) -> None:
    """Raise :class:`InvalidInput` unless ``tenant`` can be a namespace of tenants; ``namespace`` is the operator's."""
    if not is_dns_label(tenant):
        raise InvalidInput(f"--tenant: {tenant!r}: must be a lower-case DNS label")
    if _is_of_the_system(tenant) or tenant == namespace:
        raise InvalidInput(
            f"--tenant: {tenant}: must be a namespace of tenants, because quota and NetworkPolicies can stop what runs "
            f"there: not {namespace} of the operator (--namespace), openshift, or a name that begins with kube- or "
            "openshift-"
        )


def _print(objects: list[Object]) -> None:
    click.echo(yaml.dump_all(objects, Dumper=_DUMPER, sort_keys=False, width=120), nl=False)
