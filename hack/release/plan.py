"""The plan of a release, and the steps that remain after it, as human-readable text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from hack.files import read
from hack.release import changelogs, history, image_tags, pull_requests, versions
from hack.release.request import SDK, Request
from hack.release.semver import Version

_STACKS = "\n  make bundle-build-push catalog-build-push    (the operators of InferenceStacks)"

_STABLE = "\n  make release-stable                (moves :stable, once the pull request with the bundle is merged)"

LAST_GO_VERSION = Version(1, 16, 0)
"""The last release of the Go operator in the community catalog (same package name)."""


def plan(
    request: Request, changed: Sequence[str], checks: Sequence[Sequence[str]], output: Path
) -> str:
    """Return the plan: versions, ``changed`` files, commands of the checks, and the folder of the pull requests."""
    rows = "\n".join(_rows(request))
    commands = "\n".join(f"     {shlex.join(command)}" for command in checks)
    files = "\n".join(f"     {name}" for name in changed)
    kind = "hotfix" if request.hotfix else "release"
    return f"""Plan of the {kind} {request.tag}, channel {request.channel}:
  1. versions of the stack (config/stack.yaml), and of all distributions ({", ".join(versions.FILES)}):
{rows}
  2. files generated from these: the matrix in README.md, deploy/ (bundle, catalog, charts), config/manager/params.env;
     {" and ".join(changelogs.FILES)} get the heading {request.version} if they list changes. Changed files:
{files}
  3. checks, in a separate worktree:
{commands}
  4. one commit and one tag {request.tag}, on the branch that is checked out
  5. written to {output}: pull requests for community operators and Open Data Hub"""


def _rows(request: Request) -> Iterator[str]:
    """Yield a line for each component of the stack."""
    for name, number in request.stack.items():
        row = f"     {name:20} {number}"
        previous = request.previous[name]
        if previous != number:
            row += f"  (now {previous})"
        yield row


def remaining(root: Path, request: Request, output: Path) -> str:
    """Return the remaining steps for a person or workflow."""
    images = [f"{pull_requests.IMAGE}:{request.tag}"]
    if not request.hotfix:
        images.append(f"{pull_requests.IMAGE}:dev")
    stable = ""
    if image_tags.is_stable(request.tag, read(root / history.RELEASES, root)):
        stable = _STABLE
    folders = ", ".join(f"{name}/" for name in _folders(root, request))
    stacks = ""
    if not request.hotfix and not request.version.pre:
        stacks = _STACKS
    return f"""Next steps:
  make release-push                  (git push --atomic --follow-tags origin HEAD)
  make image-push TAGS="{" ".join(images)}"
  make bundle-push catalog-push{stacks}
  make dist release-draft            (a draft release on GitHub with both, and {output}/notes.md; publish it)
  start the workflow Publish for {request.tag} (both distributions, on the package index)
  open the pull requests in {output}: {folders}{stable}
  announce the release {request.tag} in chat and on the mailing lists"""


def for_community_operators(root: Path, request: Request) -> bool:
    """Return whether the community catalog accepts the release.

    It accepts no pre-releases and is append-only: the release must be the newest of its major version, and newer than
    the Go operator's last one.
    """
    version = request.version
    if version.pre or not version > LAST_GO_VERSION:
        return False
    return version == max(each for each in history.releases(root) if each.major == version.major)


def _folders(root: Path, request: Request) -> list[str]:
    folders = ["opendatahub", "red-hat-data-services"]
    if for_community_operators(root, request):
        folders.insert(0, "community-operators")
    if request.components[SDK] != request.previous[SDK]:
        folders.append("opendatahub-notebooks")
    return folders
