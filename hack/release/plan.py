"""The plan of a release, and the steps that remain after it, as human-readable text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from hack.files import read
from hack.release import changelogs, history, image_tags, pull_requests, versions
from hack.release.request import SDK, Request
from hack.release.semver import Version

_STACKS = "\n  make bundle-build-push catalog-build-push    (the operators of InferenceStacks)"

LAST_GO_VERSION = Version(1, 16, 0)
"""The last release of the Go operator in the community catalog (same package name)."""


def plan(
    request: Request, changed: Sequence[str], checks: Sequence[Sequence[str]], output: Path
) -> str:
    """Return the plan: versions, ``changed`` files, commands of the checks, and the folder of the pull requests."""
    rows = "\n".join(
        f"     {name:20} {number}"
        + (f"  (now {now})" if (now := request.previous[name]) != number else "")
        for name, number in request.stack.items()
    )
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


def remaining(root: Path, request: Request, output: Path) -> str:
    """Return the remaining steps for a person or workflow."""
    images = [
        f"{pull_requests.IMAGE}:{name}"
        for name in (request.tag, *([] if request.hotfix else ["dev"]))
    ]
    is_stable = image_tags.is_stable(request.tag, read(root / history.RELEASES, root))
    stable = "\n  make release-stable                (moves :stable, once the pull request with the bundle is merged)"
    folders = ", ".join(f"{name}/" for name in _folders(root, request))
    stacks = "" if request.hotfix or request.version.pre else _STACKS
    return f"""Next steps:
  make release-push                  (git push --atomic --follow-tags origin HEAD)
  make image-push TAGS="{" ".join(images)}"
  make bundle-push catalog-push{stacks}
  make dist release-draft            (a draft release on GitHub with both, and {output}/notes.md; publish it)
  start the workflow Publish for {request.tag} (both distributions, on the package index)
  open the pull requests in {output}: {folders}{stable if is_stable else ""}
  announce the release {request.tag} in chat and on the mailing lists"""


def for_community_operators(root: Path, request: Request) -> bool:
    """Return whether the community catalog accepts the release.

    It accepts no pre-releases and is append-only: the release must be the newest of its major version, and newer than
    the Go operator's last one.
    """
    newest = max(
        version for version in history.releases(root) if version.major == request.version.major
    )
    return (
        not request.version.pre and request.version == newest and request.version > LAST_GO_VERSION
    )


def _folders(root: Path, request: Request) -> list[str]:
    return [
        *(["community-operators"] if for_community_operators(root, request) else []),
        "opendatahub",
        "red-hat-data-services",
        *(["opendatahub-notebooks"] if request.components[SDK] != request.previous[SDK] else []),
    ]
