"""The pull requests of a release to other repositories: their files in the layout of the target, and their texts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from hack.release.request import SDK
from hack.release.semver import Version

PACKAGE = "codeflare-operator"
IMAGE = f"quay.io/project-codeflare/{PACKAGE}"


@dataclass(frozen=True)
class Contents:
    """The facts that the texts contain."""

    version: Version
    components: dict[str, str]
    """All components of the stack, the operator first."""
    previous_sdk: str
    """The version of the SDK in the previous release."""
    notes: str
    """The sections of this release in the changelogs."""
    for_community_operators: bool
    """Whether the community catalog accepts this release."""

    @property
    def tag(self) -> str:
        return f"v{self.version}"

    @property
    def component_list(self) -> str:
        return "\n".join(f"* {name} {number}" for name, number in self.components.items())


def write(tree: Path, output: Path, contents: Contents) -> None:
    """Create the folder ``output`` from the released ``tree``, with one folder for each pull request."""
    output.mkdir(parents=True)
    (output / "notes.md").write_text(f"# {contents.tag}\n\n{contents.component_list}\n\n{contents.notes}\n")
    if contents.for_community_operators:
        _community_operators(tree, output / "community-operators", contents)
    _open_data_hub(tree, output / "opendatahub", contents)
    if contents.components[SDK] != contents.previous_sdk:
        _notebooks(output / "opendatahub-notebooks", contents)


def _community_operators(tree: Path, folder: Path, contents: Contents) -> None:
    target = folder / "operators" / PACKAGE / str(contents.version)
    shutil.copytree(tree / "deploy" / "bundle", target)
    (folder / "pull-request.md").write_text(
        f"# operator {PACKAGE} ({contents.version})\n\nFor redhat-openshift-ecosystem/community-operators-prod: the "
        f"bundle of CodeFlare operator {contents.tag}, built for\n\n{contents.component_list}\n"
    )


def _open_data_hub(tree: Path, folder: Path, contents: Contents) -> None:
    shutil.copytree(tree / "config", folder / "config")
    (folder / "pull-request.md").write_text(
        f"# Update the CodeFlare operator to {contents.tag}\n\nFor opendatahub-io/codeflare-operator: manifests and "
        f"`config/manager/params.env` of {contents.tag}. The image is `{IMAGE}:{contents.tag}`.\n\n"
        f"{contents.component_list}\n"
    )


def _notebooks(folder: Path, contents: Contents) -> None:
    folder.mkdir()
    new = contents.components[SDK]
    (folder / "pull-request.md").write_text(
        f"# Update codeflare-sdk to {new}\n\nFor opendatahub-io/notebooks: CodeFlare {contents.tag} is built for "
        f"codeflare-sdk {new} (before: {contents.previous_sdk}). In each notebook image that includes it, require "
        f"`codeflare-sdk~={new.removeprefix('v')}` and update the lock file.\n"
    )
