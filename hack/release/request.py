"""The release request: validated command-line arguments."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from hack.files import ToolError
from hack.release import stack
from hack.release.semver import Version

OPTIONS = {
    "sdk": "CodeFlare-SDK",
    "appwrapper": "AppWrapper",
    "kuberay": "KubeRay",
    "kueue": "Kueue",
}
"""The components, by the option that sets their version."""
SDK = OPTIONS["sdk"]

_PYTHON_PRE_RELEASE = re.compile(r"(alpha|beta|rc|dev)(\.\d+)?")


@dataclass(frozen=True)
class Request:
    """A release, and the versions of the components before it."""

    version: Version
    components: dict[str, str]
    previous: dict[str, str]
    channel: str
    hotfix: bool
    today: date

    @property
    def tag(self) -> str:
        return f"v{self.version}"

    @property
    def stack(self) -> dict[str, str]:
        """All components of the stack, the operator first."""
        return {stack.OPERATOR: self.tag, **self.components}


def read_request(root: Path, options: argparse.Namespace) -> Request:
    """Validate the arguments. Raises :class:`ToolError`."""
    version = _version(options.version, "version")
    if version.pre and _PYTHON_PRE_RELEASE.fullmatch(version.pre) is None:
        raise ToolError(
            f"version v{version}: a pre-release must be alpha.N, beta.N, rc.N or dev.N, as in versions of wheels"
        )
    previous = {component["name"]: component["version"] for component in stack.load(root)}
    components: dict[str, str] = {}
    for option, name in OPTIONS.items():
        if name not in previous:
            raise ToolError(f"{stack.STACK}: components: {name} is missing")
        argument = getattr(options, option)
        if argument is None and not options.partial:
            raise ToolError(
                f"--{option}: the version of {name} is missing (now {previous[name]}; --partial keeps it)"
            )
        if argument is None:
            argument = previous[name]
        new = _version(argument, f"--{option}")
        if new < Version.parse(previous[name]) and not options.hotfix:
            raise ToolError(
                f"--{option} v{new}: older than {previous[name]} of the previous release; only --hotfix allows that"
            )
        components[name] = f"v{new}"
    channel = options.channel or ("candidate" if version.pre else "stable")
    if version.pre and channel != "candidate":
        raise ToolError(
            f"--channel {channel}: {version} is a pre-release and must be in the channel candidate"
        )
    return Request(version, components, previous, channel, options.hotfix, datetime.now(UTC).date())


def _version(string: str, where: str) -> Version:
    try:
        return Version.parse(string)
    except ValueError as error:
        raise ToolError(f"{where} {error}") from None
