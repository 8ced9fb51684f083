"""The scripts that the containers of a MiniCluster run, and the configuration of its brokers.

A script is a list of variables followed by constant text from ``scripts/*.sh``. Everything that comes from the spec is
in the variables, quoted, so that no value can change the structure of a script. Hooks of the spec (``commands.*``) are
shell code; a script evaluates them where they belong.

Sources for the brokers: `flux-config-bootstrap`_, `flux-broker-attributes`_, `flux-start`_.

.. _flux-config-bootstrap: https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man5/flux-config-bootstrap.html
.. _flux-broker-attributes: https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man7/flux-broker-attributes.html
.. _flux-start: https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/flux-start.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from shlex import quote
from typing import Any, Final

import orjson

from cfo.controllers.flux.minicluster.plan import BROKER_PORT, SCRIPTS_PATH, Plan, lead_host

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


def hostlist(plan: Plan) -> str:
    """Return the hosts of the instance in the order of their ranks, in Flux's hostlist format.

    These are the hosts that the cluster can grow to, followed by those of bursted clusters. A bursted cluster has the
    hosts of the cluster that it belongs to in front of its own. ``spec.flux.bursting.hostlist`` replaces them all.
    """
    bursting = _bursting(plan)
    if bursting.get("hostlist"):
        return str(bursting["hostlist"])
    bursted = _bursted_groups(plan)
    lead = bursting.get("leadBroker") or {}
    if lead:
        hosts = _host_range(lead["name"], 0, lead["size"])
        bursted = bursted or [_own_hosts(plan)]
    else:
        hosts = _own_hosts(plan)
    return ",".join([hosts, *bursted])


def _lead_host_of(plan: Plan) -> str:
    """Return the host of the lead broker; it is not a pod of this cluster if this is a bursted cluster."""
    lead = _bursting(plan).get("leadBroker") or {}
    return lead_host(lead.get("name") or plan.name)


def broker_config(plan: Plan) -> str:
    """Return ``broker.toml``: ``spec.flux.brokerConfig`` if it is set, otherwise the generated one."""
    if plan.flux.get("brokerConfig"):
        return str(plan.flux["brokerConfig"])
    queue_policy = (plan.flux.get("scheduler") or {}).get("queuePolicy") or "fcfs"
    sections: dict[str, dict[str, str]] = {
        "access": {"allow-guest-user": "true", "allow-root-owner": "true"},
        "resource": {"path": _toml(f"{plan.config_root}/etc/flux/system/R")},
        "bootstrap": {
            "curve_cert": _toml(f"{plan.config_root}/curve/curve.cert"),
            "default_port": str(BROKER_PORT),
            "default_bind": _toml("tcp://eth0:%p"),
            "default_connect": _toml(
                f"tcp://%h.{plan.service}.{plan.namespace}.svc.cluster.local:%p"
            ),
            "hosts": _host_entries(plan),
        },
        "archive": {
            "dbpath": _toml(f"{plan.config_root}/var/lib/flux/job-archive.sqlite"),
            "period": _toml("1m"),
            "busytimeout": _toml("50s"),
        },
        "sched-fluxion-qmanager": {"queue-policy": _toml(queue_policy)},
    }
    return "\n".join(_toml_table(name, settings) for name, settings in sections.items())


def _broker_options(plan: Plan) -> list[str]:
    """Return the options of ``flux start`` and ``flux broker``, except the one that restores an archive."""
    root = plan.config_root
    flux = plan.flux
    attributes: dict[str, str | int | None] = {
        "cron.directory": f"{root}/etc/flux/system/cron.d",
        "tbon.fanout": 256,
        "rundir": f"{root}/run/flux",
        "statedir": f"{root}/var/lib/flux",
        "local-uri": None if flux.get("disableSocket") else f"local://{plan.socket_path}",
        "tbon.connect_timeout": plan.connect_timeout or None,
        "tbon.topo": flux.get("topology") or None,
        "broker.quorum": _quorum(plan),
        "tbon.zmqdebug": 1 if plan.logging.get("zeromq") else None,
        "log-stderr-level": plan.log_level,
        "log-stderr-mode": "local",
    }
    options = [f"--config-path={root}/etc/flux/config"]
    if plan.spec.get("interactive"):
        options.append("-Sbroker.rc2_none")
    for name, value in attributes.items():
        if value is not None:
            options.append(f"-S{name}={value}")
    return options


def _submit_flags(plan: Plan) -> list[str]:
    """Return the flags of ``flux submit`` that set the number of nodes and tasks, and its verbosity."""
    flags: list[str] = []
    if not plan.tasks or plan.tasks >= plan.size:
        flags.append(f"-N{plan.size}")
    if plan.tasks:
        flags.append(f"-n{plan.tasks}")
    if plan.logging.get("debug"):
        flags.append("-vvv")
    return flags


def _quorum(plan: Plan) -> int | None:
    """Return the number of brokers with which the command starts; ``None``: all hosts, which is Flux's default."""
    if plan.spec.get("minSize"):
        return int(plan.spec["minSize"])
    return plan.size if plan.maximum > plan.size else None


def _bursting(plan: Plan) -> Mapping[str, Any]:
    return plan.flux.get("bursting") or {}


def _bursted_groups(plan: Plan) -> list[str]:
    clusters = _bursting(plan).get("clusters") or ()
    return [
        _host_range(item.get("name") or f"burst-{index}", 0, item.get("size") or plan.size)
        for index, item in enumerate(clusters)
    ]


def _own_hosts(plan: Plan) -> str:
    return _host_range(plan.name, 0, plan.maximum)


def _host_range(name: str, first: int, last_exclusive: int) -> str:
    last = last_exclusive - 1
    return f"{name}-[{first}]" if last <= first else f"{name}-[{first}-{last}]"


def _host_entries(plan: Plan) -> str:
    """Return the array ``hosts``; the lead broker of another cluster has an address of its own."""
    lead = _bursting(plan).get("leadBroker") or {}
    if not lead or _bursting(plan).get("hostlist"):
        return f"[{{ host = {_toml(hostlist(plan))} }}]"
    address = f"tcp://{lead['address']}:{lead.get('port') or BROKER_PORT}"
    entries = [f"{{ host = {_toml(lead_host(lead['name']))}, connect = {_toml(address)} }}"]
    hosts = _bursted_groups(plan) or [_own_hosts(plan)]
    if lead["size"] > 1:
        others = _host_range(lead["name"], 1, lead["size"])
        hosts = [others, *hosts]
    entries += [f"{{ host = {_toml(group)} }}" for group in hosts]
    return f"[{', '.join(entries)}]"


def _toml_table(name: str, settings: Mapping[str, str]) -> str:
    lines = [f"[{name}]"]
    lines += [f"{key} = {value}" for key, value in settings.items()]
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    """Return ``text`` as a basic string of TOML, whose escapes are those of JSON."""
    return orjson.dumps(text).decode().replace("\x7f", "\\u007f")


def script_files(plan: Plan) -> dict[str, tuple[str, str]]:
    """Return the scripts of the containers: by their key in the ConfigMap, the file name in the pods and the text."""
    runner_script = wait_script(plan, plan.containers[plan.runner])
    found = {
        f"wait-{plan.runner}": (f"wait-{plan.runner}.sh", runner_script),
        plan.view_name: ("flux-init.sh", init_script(plan)),
    }
    for index, container in enumerate(plan.containers):
        if index != plan.runner and not container.get("noWrapEntrypoint"):
            found[f"start-{index}"] = (f"start-{index}.sh", sidecar_script(plan, container))
    return found


def scripts_hash(plan: Plan) -> str:
    """Return the hash of the scripts of a MiniCluster, which does not depend on its current size.

    It differs between versions of the operator whose scripts differ.
    """
    files_at_maximum = script_files(replace(plan, size=plan.maximum))
    digest = hashlib.blake2b(digest_size=16)
    for key, (_, text) in sorted(files_at_maximum.items()):
        digest.update(f"{key}\n{text}\n".encode())
    return digest.hexdigest()


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
    command = str(container.get("command") or "")
    variables: dict[str, _Value] = {
        **_paths(plan),
        **_view(plan),
        **_hooks(container),
        "hostlist": hostlist(plan),
        "lead_host": _lead_host_of(plan),
        "broker_options": _broker_options(plan),
        "wrap": [f"--wrap={flux['wrap']}"] if flux.get("wrap") else [],
        "command_mode": _command_mode(container),
        "command": _unescaped(command) if container.get("batch") else command,
        "batch_raw": bool(container.get("batchRaw")),
        "submit_command": flux.get("submitCommand") or "flux submit",
        "submit_flags": _submit_flags(plan),
        "option_flags": flux.get("optionFlags") or "",
        "output_path": container.get("logs") or _OUTPUT,
        "archive_path": (plan.spec.get("archive") or {}).get("path") or "",
        "complete_workers": bool(flux.get("completeWorkers")),
        "retry_command": plan.retries_command,
        "retry_seconds": _RETRY_SECONDS,
        "timed": bool(plan.logging.get("timed")),
    }
    return _script(plan, variables, "common.sh", "wait.sh")


def _command_mode(container: Mapping[str, Any]) -> str:
    if container.get("batch"):
        return "batch"
    if container.get("launcher"):
        return "launcher"
    return "submit"


def sidecar_script(plan: Plan, container: Mapping[str, Any]) -> str:
    """Return the script of ``container``, which does not run Flux."""
    needs_no_socket = plan.flux.get("noWaitSocket") or plan.flux.get("disableSocket")
    variables = {
        **_paths(plan),
        **_view(plan),
        **_hooks(container),
        "command": container.get("command") or "",
        "wait_for_socket": not needs_no_socket,
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
    exports = "".join(
        f"export {quote(f'{name}={value}')}\n" for name, value in sorted(environment.items())
    )
    return {
        "copy_view": plan.copies_view,
        "home_path": _HOME,
        "use_fluxion": not (plan.flux.get("scheduler") or {}).get("simple"),
        "python_path": plan.view.get("pythonPath") or "",
        "environment": exports,
    }


def _hooks(container: Mapping[str, Any]) -> dict[str, _Value]:
    commands = container.get("commands") or {}
    hooks: dict[str, _Value] = {
        f"hook_{name}": commands.get(key) or "" for name, key in _HOOKS.items()
    }
    hooks["hook_script"] = _unescaped(str(hooks["hook_script"]))
    return hooks


def _unescaped(text: str) -> str:
    r"""Return a script without the backslashes of ``\$`` and of escaped backticks.

    The Go operator writes scripts and batch files through a shell that expands them, so their authors escape what
    must be expanded only when they run.
    """
    return text.replace("\\$", "$").replace("\\`", "`")


def _script(plan: Plan, variables: Mapping[str, _Value], *parts: str) -> str:
    """Return a script that sets ``variables`` and continues with the texts ``parts``."""
    lines = ["#!/bin/bash"]
    if plan.logging.get("strict"):
        lines.append("set -eEu -o pipefail")
    quiet = bool(plan.logging.get("quiet"))
    lines.append(f"quiet={_shell(quiet)}")
    lines += [f"{name}={_shell(value)}" for name, value in variables.items()]
    lines.append("")
    lines += [_text(part) for part in parts]
    return "\n".join(lines)


def _shell(value: _Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"({' '.join(map(quote, value))})"
    return quote(str(value))


@cache
def _text(name: str) -> str:
    return (files(__package__) / "scripts" / name).read_text(encoding="utf-8")
