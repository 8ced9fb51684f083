"""The configuration of the brokers of a MiniCluster: hosts, ``broker.toml``, options, and flags of ``flux submit``.

Sources: `flux-config-bootstrap`_, `flux-broker-attributes`_, `flux-start`_.

.. _flux-config-bootstrap: https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man5/flux-config-bootstrap.html
.. _flux-broker-attributes: https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man7/flux-broker-attributes.html
.. _flux-start: https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/flux-start.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cfo.controllers.flux.minicluster.names import BROKER_PORT, lead_host
from cfo.controllers.flux.minicluster.plan import Plan

__all__ = ["broker_config", "broker_options", "hostlist", "lead_host_of", "submit_flags"]


def hostlist(plan: Plan) -> str:
    """Return the hosts of the instance in the order of their ranks, in Flux's hostlist format.

    These are the hosts that the cluster can grow to, followed by those of bursted clusters. A bursted cluster has the
    hosts of the cluster that it belongs to in front of its own. ``spec.flux.bursting.hostlist`` replaces them all.
    """
    bursting = _bursting(plan)
    if bursting.get("hostlist"):
        return str(bursting["hostlist"])
    lead = bursting.get("leadBroker") or {}
    groups = _bursted_groups(plan)
    if lead:
        return ",".join([_hosts(lead["name"], 0, lead["size"]), *(groups or [_own_hosts(plan)])])
    return ",".join([_own_hosts(plan), *groups])


def lead_host_of(plan: Plan) -> str:
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
            "default_connect": _toml(f"tcp://%h.{plan.service}.{plan.namespace}.svc.cluster.local:%p"),
            "hosts": _host_entries(plan),
        },
        "archive": {
            "dbpath": _toml(f"{plan.config_root}/var/lib/flux/job-archive.sqlite"),
            "period": _toml("1m"),
            "busytimeout": _toml("50s"),
        },
        "sched-fluxion-qmanager": {"queue-policy": _toml(queue_policy)},
    }
    return "\n".join(
        f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())
        for section, settings in sections.items()
    )


def broker_options(plan: Plan) -> list[str]:
    """Return the options of ``flux start`` and ``flux broker``, except the one that restores an archive."""
    root, flux = plan.config_root, plan.flux
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
    options = [f"--config-path={plan.broker_config_path}"]
    if plan.spec.get("interactive"):
        options.append("-Sbroker.rc2_none")
    return options + [f"-S{name}={value}" for name, value in attributes.items() if value is not None]


def submit_flags(plan: Plan) -> list[str]:
    """Return the flags of ``flux submit`` that set the number of nodes and tasks, and its verbosity."""
    tasks, size = plan.tasks, plan.size
    flags = [f"-N{size}"] if tasks >= size or not tasks else []
    if tasks:
        flags.append(f"-n{tasks}")
    return flags + (["-vvv"] if plan.logging.get("debug") else [])


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
        _hosts(item.get("name") or f"burst-{index}", 0, item.get("size") or plan.size)
        for index, item in enumerate(clusters)
    ]


def _own_hosts(plan: Plan) -> str:
    return _hosts(plan.name, 0, plan.maximum)


def _hosts(name: str, first: int, last_exclusive: int) -> str:
    last = last_exclusive - 1
    return f"{name}-[{first}]" if last <= first else f"{name}-[{first}-{last}]"


def _host_entries(plan: Plan) -> str:
    """Return the array ``hosts``; the lead broker of another cluster has an address of its own."""
    lead = _bursting(plan).get("leadBroker") or {}
    if not lead or _bursting(plan).get("hostlist"):
        return f"[{{ host = {_toml(hostlist(plan))} }}]"
    address = f"tcp://{lead['address']}:{lead.get('port') or BROKER_PORT}"
    entries = [f"{{ host = {_toml(lead_host(lead['name']))}, connect = {_toml(address)} }}"]
    if lead["size"] > 1:
        entries.append(f"{{ host = {_toml(_hosts(lead['name'], 1, lead['size']))} }}")
    entries += [f"{{ host = {_toml(group)} }}" for group in _bursted_groups(plan) or [_own_hosts(plan)]]
    return f"[{', '.join(entries)}]"


def _toml(text: str) -> str:
    """Return ``text`` as a basic string of TOML, whose escapes are those of JSON."""
    return orjson.dumps(text).decode().replace("\x7f", "\\u007f")
