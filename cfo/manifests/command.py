"""``cfo manifests``: an installation as one YAML stream."""

from __future__ import annotations

import re

import click
import yaml

from cfo.manifests.names import DEFAULT_NAMESPACE, default_image
from cfo.manifests.overlays import COMPONENTS, OVERLAYS, render

__all__ = ["command"]

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"[\w][\w.:/-]*(@sha256:[0-9a-f]{64})?", re.ASCII)


@click.command("manifests", short_help="Print what installs the operator.")
@click.option("--namespace", help=f"Where the operator lives; by default {DEFAULT_NAMESPACE}, with odh opendatahub.")
@click.option("--image", help=f"The operator's image; by default {default_image()}.")
@click.option("--overlay", type=click.Choice(list(OVERLAYS)), default="default", show_default=True)
@click.option(
    "--with",
    "components",
    type=click.Choice(sorted(COMPONENTS)),
    multiple=True,
    help="Add this to it: certificates from cert-manager, a NetworkPolicy, Prometheus. Repeatable.",
)
def command(namespace: str | None, image: str | None, overlay: str, components: tuple[str, ...]) -> None:
    """Print the manifests that install the operator: pipe them into kubectl apply --server-side -f -."""
    if namespace is not None and not _NAMESPACE.fullmatch(namespace):
        raise click.BadParameter(f"{namespace!r}: must be a lower-case DNS label", param_hint="--namespace")
    if image is not None and not _IMAGE.fullmatch(image):
        raise click.BadParameter(f"{image!r}: must be the reference of an image", param_hint="--image")
    objects = render(overlay, namespace=namespace or "", image=image or "", components=components)
    click.echo(yaml.safe_dump_all(objects, sort_keys=False, width=120), nl=False)
