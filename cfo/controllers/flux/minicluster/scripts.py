"""The scripts that the containers of a MiniCluster run.

A script is a list of variables followed by constant text from ``scripts/*.sh``. Everything that comes from the spec is
in the variables, quoted, so that no value can change the structure of a script. Hooks of the spec (``commands.*``) are
shell code; a script evaluates them where they belong.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from shlex import quote
from typing import Any, Final

from cfo.controllers.flux.minicluster.broker import (
    broker_config,
    broker_options,
    hostlist,
    lead_host_of,
    submit_flags,
)
from cfo.controllers.flux.minicluster.names import SCRIPTS_PATH
from cfo.controllers.flux.minicluster.plan import Plan

__all__ = ["init_script", "script_files", "sidecar_script", "wait_script"]

_RETRY_SECONDS = 15
_HOME = "/home/flux-operator"
_SOFTWARE = "/opt/software"
_VIEWS = "/opt/views/._view"
_CUSTOM_SCRIPT = "/tmp/custom-entrypoint.sh"  # noqa: S108 - a path in the user's container, as in the Go operator
_OUTPUT = "/tmp/fluxout"  # noqa: S108 - likewise
_HOOKS: Final = {
    "init": "init",
    "pre": "pre",
    "post": "post",
    "broker_pre": "brokerPre",
    "worker_pre": "workerPre",
    "service_pre": "servicePre",
    "prefix": "prefix",
    "script": "script",
}

_Value = str | bool | int | list[str]


def script_files(plan: Plan) -> dict[str, tuple[str, str]]:
    """Return the scripts of the containers: by their key in the ConfigMap, the file name in the pods and the text."""
    found = {
        f"wait-{plan.runner}": (f"wait-{plan.runner}.sh", wait_script(plan, plan.containers[plan.runner])),
        plan.view_name: ("flux-init.sh", init_script(plan)),
    }
    for index, container in enumerate(plan.containers):
        if index != plan.runner and not container.get("noWrapEntrypoint"):
            found[f"start-{index}"] = (f"start-{index}.sh", sidecar_script(plan, container))
    return found


def init_script(plan: Plan) -> str:
    """Return the script of the init container, which prepares the shared volume."""
    variables = {
        **_paths(plan),
        "views_path": _VIEWS,
        "copy_view": plan.copies_view,
        "hostlist": hostlist(plan),
        "broker_config": broker_config(plan),
    }
    return _script(plan, variables, "init.sh")


def wait_script(plan: Plan, container: Mapping[str, Any]) -> str:
    """Return the script of ``container``, which runs Flux and the command."""
    flux = plan.flux
    variables: dict[str, _Value] = {
        **_paths(plan),
        **_view(plan),
        **_hooks(container),
        "hostlist": hostlist(plan),
        "lead_host": lead_host_of(plan),
        "broker_options": broker_options(plan),
        "wrap": [f"--wrap={flux['wrap']}"] if flux.get("wrap") else [],
        "command_mode": next((mode for mode in ("batch", "launcher") if container.get(mode)), "submit"),
        "command": container.get("command") or "",
        "batch_raw": bool(container.get("batchRaw")),
        "submit_command": flux.get("submitCommand") or "flux submit",
        "submit_flags": submit_flags(plan),
        "option_flags": flux.get("optionFlags") or "",
        "output_path": container.get("logs") or _OUTPUT,
        "archive_path": (plan.spec.get("archive") or {}).get("path") or "",
        "use_fluxion": plan.copies_view and not (flux.get("scheduler") or {}).get("simple"),
        "complete_workers": bool(flux.get("completeWorkers")),
        "retry_command": plan.retries_command,
        "retry_seconds": _RETRY_SECONDS,
        "timed": bool(plan.logging.get("timed")),
        "home_path": _HOME,
    }
    return _script(plan, variables, "common.sh", "wait.sh")


def sidecar_script(plan: Plan, container: Mapping[str, Any]) -> str:
    """Return the script of ``container``, which does not run Flux."""
    variables = {
        **_paths(plan),
        **_view(plan),
        **_hooks(container),
        "command": container.get("command") or "",
        "wait_for_socket": not (plan.flux.get("noWaitSocket") or plan.flux.get("disableSocket")),
    }
    return _script(plan, variables, "common.sh", "start.sh")


def _paths(plan: Plan) -> dict[str, _Value]:
    return {
        "view_root": plan.mount_path,
        "config_root": plan.config_root,
        "socket_path": plan.socket_path,
        "scripts_path": SCRIPTS_PATH,
        "software_path": _SOFTWARE,
        "custom_script": _CUSTOM_SCRIPT,
    }


def _view(plan: Plan) -> dict[str, _Value]:
    environment = plan.flux.get("environment") or {}
    exports = "".join(f"export {quote(f'{name}={value}')}\n" for name, value in sorted(environment.items()))
    return {
        "copy_view": plan.copies_view,
        "python_path": plan.view.get("pythonPath") or "",
        "environment": exports,
    }


def _hooks(container: Mapping[str, Any]) -> dict[str, _Value]:
    commands = container.get("commands") or {}
    return {f"hook_{name}": commands.get(key) or "" for name, key in _HOOKS.items()}


def _script(plan: Plan, variables: Mapping[str, _Value], *parts: str) -> str:
    """Return a script that sets ``variables`` and continues with the texts ``parts``."""
    quiet = bool(plan.logging.get("quiet"))
    assignments = [f"{name}={_shell(value)}" for name, value in {"quiet": quiet, **variables}.items()]
    strict = ["set -eEu -o pipefail"] if plan.logging.get("strict") else []
    return "\n".join(["#!/bin/bash", *strict, *assignments, "", *map(_text, parts)])


def _shell(value: _Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"({' '.join(map(quote, value))})"
    return quote(str(value))


@cache
def _text(name: str) -> str:
    return (files(__package__) / "scripts" / name).read_text(encoding="utf-8")
