"""What a release sends to other repositories: files laid out as they go there, and the text of each pull request."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from semver import Version

PACKAGE = "codeflare-operator"
IMAGE = f"quay.io/project-codeflare/{PACKAGE}"


@dataclass(frozen=True)
class Contents:
    """What the texts tell of."""

    version: Version
    components: dict[str, str]
    """Every component of the stack, the operator first."""
    sdk_before: str
    notes: str
    """Of the changelog."""
    for_operators: bool
    """Does the community's catalog take it? It grows at its end alone, and has no pre-releases."""

    @property
    def tag(self) -> str:
        return f"v{self.version}"

    @property
    def rows(self) -> str:
        return "\n".join(f"* {name} {number}" for name, number in self.components.items())


def write(tree: Path, output: Path, contents: Contents) -> list[str]:
    """Writes into the new folder ``output`` from the released ``tree``; the names of the folders made."""
    output.mkdir(parents=True)
    (output / "notes.md").write_text(f"# {contents.tag}\n\n{contents.rows}\n\n{contents.notes}\n")
    made = []
    if contents.for_operators:
        _community_operators(tree, output / "community-operators", contents)
        made.append("community-operators")
    _open_data_hub(tree, output / "opendatahub", contents)
    made.append("opendatahub")
    if contents.components["CodeFlare-SDK"] != contents.sdk_before:
        _notebooks(output / "opendatahub-notebooks", contents)
        made.append("opendatahub-notebooks")
    return made


def _community_operators(tree: Path, folder: Path, contents: Contents) -> None:
    target = folder / "operators" / PACKAGE / str(contents.version)
    shutil.copytree(tree / "bundle", target)
    (folder / "pull-request.md").write_text(
        f"# operator {PACKAGE} ({contents.version})\n\nFor redhat-openshift-ecosystem/community-operators-prod: the "
        f"bundle of CodeFlare operator {contents.tag}, made for\n\n{contents.rows}\n"
    )


def _open_data_hub(tree: Path, folder: Path, contents: Contents) -> None:
    shutil.copytree(tree / "config", folder / "config")
    (folder / "pull-request.md").write_text(
        f"# Update the CodeFlare operator to {contents.tag}\n\nFor opendatahub-io/codeflare-operator: manifests and "
        f"`config/manager/params.env` of {contents.tag}. The image is `{IMAGE}:{contents.tag}`.\n\n{contents.rows}\n"
    )


def _notebooks(folder: Path, contents: Contents) -> None:
    folder.mkdir()
    new = contents.components["CodeFlare-SDK"]
    (folder / "pull-request.md").write_text(
        f"# Update codeflare-sdk to {new}\n\nFor opendatahub-io/notebooks: CodeFlare {contents.tag} is made for "
        f"codeflare-sdk {new}; it was {contents.sdk_before} before. In each notebook image that has it, require "
        f"`codeflare-sdk~={new.removeprefix('v')}` and renew the lock.\n"
    )
