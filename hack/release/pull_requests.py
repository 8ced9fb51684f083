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
    (output / "notes.md").write_text(
        f"# {contents.tag}\n\n{contents.component_list}\n\n{contents.notes}\n"
    )
    if contents.for_community_operators:
        _community_operators(tree, output / "community-operators", contents)
    _open_data_hub(tree, output / "opendatahub", contents)
    _downstream(output / "red-hat-data-services", contents)
    if contents.components[SDK] != contents.previous_sdk:
        _notebooks(output / "opendatahub-notebooks", contents)


def _community_operators(tree: Path, folder: Path, contents: Contents) -> None:
    target = folder / "operators" / PACKAGE / str(contents.version)
    shutil.copytree(tree / "deploy" / "bundle", target)
    _write_text(
        folder,
        f"operator {PACKAGE} ({contents.version})",
        "redhat-openshift-ecosystem/community-operators-prod",
        contents,
        f"The bundle of CodeFlare operator {contents.tag}, built for\n\n{contents.component_list}",
    )


def _open_data_hub(tree: Path, folder: Path, contents: Contents) -> None:
    config = folder / "config"
    shutil.copytree(tree / "config", config)
    # Open Data Hub's operator renders config/default.
    shutil.move(config / "default", config / "base")
    shutil.move(config / "odh", config / "default")
    for overlay in ("default", "e2e"):
        kustomization = config / overlay / "kustomization.yaml"
        kustomization.write_text(kustomization.read_text().replace("- ../default\n", "- ../base\n"))
    _write_text(
        folder,
        f"Update the CodeFlare operator to {contents.tag}",
        "opendatahub-io/codeflare-operator",
        contents,
        f"Manifests and `config/manager/params.env` of {contents.tag}. The image is `{IMAGE}:{contents.tag}`.\n\n"
        f"{contents.component_list}",
    )


def _downstream(folder: Path, contents: Contents) -> None:
    folder.mkdir()
    upstream = "https://github.com/opendatahub-io/codeflare-operator"
    _write_text(
        folder,
        f"Merge CodeFlare operator {contents.tag} of Open Data Hub",
        "red-hat-data-services/codeflare-operator",
        contents,
        "Once the pull request to opendatahub-io/codeflare-operator is merged:\n\n```sh\n"
        f"git fetch {upstream} main\ngit switch --create {_branch(contents)} origin/main\n"
        f"git merge --no-ff FETCH_HEAD --message 'Merge CodeFlare operator {contents.tag}'\n"
        "git diff --stat origin/main HEAD\n```\n\n"
        "Resolve conflicts in `config/manager/params.env` with this repository's images. Afterwards open the same pull "
        "request onto the newest branch `rhoai-X.Y`.",
    )


def _notebooks(folder: Path, contents: Contents) -> None:
    folder.mkdir()
    new = contents.components[SDK]
    before = f'    "codeflare-sdk~={contents.previous_sdk.removeprefix("v")}",'
    after = f'    "codeflare-sdk~={new.removeprefix("v")}",'
    _write_text(
        folder,
        f"Update codeflare-sdk to {new}",
        "opendatahub-io/notebooks",
        contents,
        f"CodeFlare {contents.tag} is built for codeflare-sdk {new} (before: {contents.previous_sdk}). In each "
        f"`pyproject.toml` that requires it (`git grep -l codeflare-sdk '*pyproject.toml'`):\n\n```diff\n-{before}\n"
        f"+{after}\n```\n\nand update the lock files: `make refresh-lock-files`.",
    )


def _branch(contents: Contents) -> str:
    return f"codeflare-{contents.tag}"


def _write_text(folder: Path, title: str, repository: str, contents: Contents, body: str) -> None:
    """Write the text of a pull request, with the repository and the branches."""
    where = f"For {repository}: branch `{_branch(contents)}` onto `main`."
    (folder / "pull-request.md").write_text(f"# {title}\n\n{where}\n\n{body}\n")
