"""Tests of the scripts of MiniClusters: their syntax, and what they run, with a stand-in for ``flux``."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cfo.controllers.flux.minicluster.plan import Plan
from cfo.controllers.flux.minicluster.scripts import (
    broker_config,
    hostlist,
    init_script,
    script_files,
    sidecar_script,
    wait_script,
)
from cfo.runtime.objects.unstructured import Object
from test.support.flux_environment import mini_cluster
from test.support.flux_machine import FLUX, Machine
from test.support.recordings import flux_cases, load_flux


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine on which the pod is the lead broker's."""
    return Machine(tmp_path)


def plan_of(
    machine: Machine | None = None, *, container: Mapping[str, Any] | None = None, **spec: Any
) -> Plan:
    """Return a plan; on a machine, the view is mounted inside its folder."""
    cluster = mini_cluster(**spec)
    cluster["spec"]["containers"][0] |= container or {}
    if machine is not None:
        flux = cluster["spec"].setdefault("flux", {})
        flux["container"] = {"mountPath": str(machine.folder / "view"), **flux.get("container", {})}
    return Plan.of(cluster)


def lead(
    machine: Machine, container: Mapping[str, Any] | None = None, **spec: Any
) -> subprocess.CompletedProcess[str]:
    """Run the script of the container that runs Flux."""
    plan = plan_of(machine, container=container, **spec)
    return machine.run(wait_script(plan, plan.containers[plan.runner]))


def test_scripts_and_broker_configuration_of_recorded_clusters_are_valid() -> None:
    scripts: set[str] = set()
    for case in flux_cases("*", "features/*"):
        for step in load_flux(case).get("steps", ()):
            cluster: Any = step.get("do", {}).get("object")
            if isinstance(cluster, dict) and cluster.get("kind") == "MiniCluster":
                plan = Plan.of(cluster)
                scripts |= {text for _, text in script_files(plan).values()}
                assert "bootstrap" in tomllib.loads(broker_config(plan))
    for script in scripts:
        checked = subprocess.run(
            ["bash", "-n"], input=script, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, f"{checked.stderr}{script}"


@pytest.mark.parametrize(
    ("size", "tasks", "flags"),
    [
        (4, 0, ["-N4"]),
        (4, 4, ["-N4", "-n4"]),
        (2, 8, ["-N2", "-n8"]),
        (4, 2, ["-n2"]),
        (1, 1, ["-N1", "-n1"]),
    ],
)
def test_submit_has_flags_for_nodes_and_tasks(
    machine: Machine, size: int, tasks: int, flags: list[str]
) -> None:
    assert lead(machine, size=size, tasks=tasks).returncode == 0
    assert machine.last() == ["submit", *flags, "--quiet", "--watch", "echo", "hello"]


def test_broker_options_follow_the_spec(machine: Machine) -> None:
    flux = {"wrap": "strace,-f", "connectTimeout": "9s", "topology": "kary:2", "logLevel": 2}
    lead(machine, size=2, maxSize=4, interactive=True, logging={"zeromq": True}, flux=flux)
    start = next(words for words in machine.commands() if words[0] == "start")
    root = machine.folder / "view" / "config"
    assert start[1:3] == ["--wrap=strace,-f", f"--config-path={root}/etc/flux/config"]
    assert set(start) >= {
        "-Sbroker.rc2_none",
        "-Sbroker.quorum=2",
        "-Stbon.connect_timeout=9s",
        "-Stbon.topo=kary:2",
        "-Stbon.zmqdebug=1",
        "-Slog-stderr-level=2",
        f"-Slocal-uri=local://{root}/run/flux/local",
    }
    assert machine.commands()[0] == ["R", "encode", "--hosts=flux-sample-[0-3]", "--local"]


def test_quotes_and_variables_of_a_command_are_kept(machine: Machine) -> None:
    lead(machine, {"command": """python -c "print('a b')" $HOME 'c  d'"""})
    assert machine.last()[-5:] == ["python", "-c", "print('a b')", "/root", "c  d"]


def test_shell_operators_of_a_command_are_arguments(machine: Machine) -> None:
    lead(machine, {"command": "echo it's && echo more"})
    assert machine.last()[-5:] == ["echo", "it's", "&&", "echo", "more"]


def test_launcher_gets_the_instance_without_submit(machine: Machine) -> None:
    machine.program("snakemake", FLUX)
    lead(
        machine,
        {"command": "snakemake --cores 1", "launcher": True, "commands": {"prefix": "env A=1"}},
    )
    assert machine.commands()[1][-5:] == ["env", "A=1", "snakemake", "--cores", "1"]
    assert machine.last() == ["--cores", "1"]


@pytest.mark.parametrize("raw", [True, False])
def test_batch_submits_each_line(machine: Machine, raw: bool) -> None:
    lead(
        machine,
        {"command": "echo 'a  b'\n\n# note\necho c\n", "batch": True, "batchRaw": raw},
        tasks=2,
    )
    assert ["batch", "-N2", "-n2", "--flags", "waitable", "./flux-job.batch"] in machine.commands()
    assert machine.last() == ["job", "wait", "--all"]
    lines = (machine.folder / "work" / "flux-job.batch").read_text().splitlines()
    output = machine.folder / "tmp" / "fluxout"
    submit = "flux submit --flags waitable"
    assert lines == (
        ["#!/bin/bash", "echo 'a  b'", "", "# note", "echo c"]
        if raw
        else [
            "#!/bin/bash",
            f"{submit} --error={output}/job-0.err --output={output}/job-0.out echo 'a  b'",
            "# note",
            f"{submit} --error={output}/job-3.err --output={output}/job-3.out echo c",
            "flux queue idle",
            "flux jobs -a",
        ]
    )


def test_cluster_without_command_runs_a_broker(machine: Machine) -> None:
    assert lead(machine, {"command": ""}).returncode == 0
    assert machine.last() == ["broker"]


def test_exit_code_of_the_command_is_kept(machine: Machine) -> None:
    hooks = {"post": "touch post-ran"}
    machine.program("flux", FLUX.replace("exit 0", "exit 3"))
    for strict in (False, True):
        result = lead(machine, {"commands": hooks}, logging={"strict": strict})
        assert result.returncode == 3
        assert (machine.folder / "view" / "flux-operator-complete.txt").exists()
        assert (machine.folder / "work" / "post-ran").exists() != strict
        (machine.folder / "work" / "post-ran").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("spec", "starts"), [({}, 1), ({"backoffLimit": 2}, 2), ({"logging": {"strict": True}}, 2)]
)
def test_failed_command_is_run_again_only_if_requested(
    machine: Machine, spec: dict[str, Any], starts: int
) -> None:
    machine.program("flux", FLUX.replace("exit 0", "exit 0; exit 3"))
    assert [lead(machine, **spec).returncode for _ in range(2)] == [3, 3]
    assert [words[0] for words in machine.commands()].count("start") == starts


def test_strict_script_ends_at_a_failing_hook(machine: Machine) -> None:
    result = lead(machine, {"commands": {"brokerPre": "false\ntrue"}}, logging={"strict": True})
    assert result.returncode == 1
    assert [words[0] for words in machine.commands()] == ["R"]


def test_hooks_share_a_shell_and_post_is_printed_in_quiet_mode(machine: Machine) -> None:
    hooks = {
        "init": "echo noise",
        "pre": "export A=1; echo noise",
        "brokerPre": "B=$A; echo noise",
        "post": 'echo "<$B>"',
    }
    result = lead(machine, {"commands": hooks}, logging={"quiet": True})
    assert result.stdout == "<1>\n"


def test_custom_script_replaces_the_command(machine: Machine) -> None:
    text = "#!/bin/sh\nlist=(one two)\necho ${list[1]}"  # bash also runs scripts that name another shell
    container = {"command": "", "commands": {"script": text}}
    lead(machine, container)
    script = machine.folder / "tmp" / "custom-entrypoint.sh"
    assert machine.last()[-2:] == ["/bin/bash", str(script)]
    assert script.read_text() == f"{text}\n"
    plan = plan_of(machine, flux={"noWaitSocket": True})
    assert machine.run(sidecar_script(plan, container)).stdout == "two\n"


@pytest.mark.parametrize("sidecar", [False, True])
@pytest.mark.parametrize(
    "flux", [{}, {"scheduler": {"simple": True}}, {"container": {"disable": True}}]
)
def test_environment_of_the_view_needs_a_view(
    machine: Machine, sidecar: bool, flux: dict[str, Any]
) -> None:
    plan = plan_of(machine, flux={"noWaitSocket": True, **flux})
    script = (
        sidecar_script(plan, {"command": "flux jobs"})
        if sidecar
        else wait_script(plan, plan.containers[0])
    )
    machine.run(script, HOME="/")
    found = {
        key: machine.calls()[-1].environment.get(key) for key in ("HOME", "USER", "FLUX_RC_EXTRA")
    }
    rc_extra = None if flux else f"{machine.folder}/view/view/etc/flux/rc1.d"
    home = (
        ("/", None)
        if "container" in flux
        else (f"{machine.folder}/home/flux-operator", "flux-operator")
    )
    assert (found["HOME"], found["USER"], found["FLUX_RC_EXTRA"]) == (*home, rc_extra)


def test_view_script_has_the_library_path_of_the_container(machine: Machine) -> None:
    lead(machine, {"commands": {"init": "export LD_LIBRARY_PATH=/opt/mpi"}})
    shown = machine.run(f'. {machine.folder}/view/flux-view.sh; echo "$LD_LIBRARY_PATH"')
    assert shown.stdout == f"/opt/mpi:{machine.folder}/view/view/lib\n"


def test_follower_starts_again_until_its_broker_ends_well(machine: Machine) -> None:
    machine.program("hostname", "#!/bin/bash\necho flux-sample-1\n")
    machine.program("sleep", "#!/bin/bash\n")
    machine.program(
        "flux",
        FLUX.replace(
            "exit 0", 'exit 0; [ "$(tr -d "\\0" < "${CALLS}" | grep -c ^start)" -ge 3 ] || exit 1'
        ),
    )
    hooks = {"workerPre": "touch worker", "brokerPre": "touch broker"}
    assert lead(machine, {"commands": hooks}).returncode == 0
    assert [words[0] for words in machine.commands()] == ["R", "start", "start", "start"]
    assert machine.last() == ["start"]
    assert (machine.folder / "work" / "worker").exists()
    assert not (machine.folder / "work" / "broker").exists()


def test_follower_ends_after_one_broker_with_complete_workers(machine: Machine) -> None:
    machine.program("hostname", "#!/bin/bash\necho flux-sample-1\n")
    machine.program("flux", FLUX.replace("exit 0", "exit 0; exit 1"))
    assert lead(machine, flux={"completeWorkers": True}).returncode == 0
    assert [words[0] for words in machine.commands()] == ["R", "start"]


def test_sigterm_ends_the_broker(machine: Machine) -> None:
    machine.program(
        "flux",
        '#!/bin/bash\n[ "$1" = R ] && exit\n'
        'trap "echo stopped; exit 5" TERM\nkill $PPID\nsleep 9 > /dev/null 2>&1 & wait\n',
    )
    result = lead(machine)
    assert (result.stdout.splitlines()[-1], result.returncode) == ("stopped", 5)


def test_exit_code_is_the_brokers_if_it_ends_while_sigterm_is_handled(machine: Machine) -> None:
    """The shell reaps the broker before it can wait for it again."""
    machine.program(
        "flux",
        '#!/bin/bash\n[ "$1" = R ] && exit\n'
        'trap "exit 5" TERM\nkill $PPID\nsleep 9 > /dev/null 2>&1 & wait\n',
    )
    kill_and_wait = """kill() {
      builtin kill "$@" || return 1
      while builtin kill -0 "${child}" 2> /dev/null && [ "$1" = -TERM ]; do sleep 0.01; done
    }"""
    assert lead(machine, {"commands": {"pre": kill_and_wait}}).returncode == 5


def test_sigterm_before_the_broker_has_started_ends_it(machine: Machine) -> None:
    machine.program("flux", '#!/bin/bash\n[ "$1" = R ] || exec sleep 15\n')
    assert lead(machine, {"commands": {"pre": "kill $$"}}).returncode == 128 + signal.SIGTERM


def test_certificate_is_private_and_never_printed(machine: Machine) -> None:
    result = lead(machine)
    copied = machine.folder / "view" / "config" / "curve" / "curve.cert"
    assert copied.read_text() == "certificate"
    assert copied.stat().st_mode & 0o777 == 0o600
    assert "certificate" not in result.stdout + result.stderr


def test_view_scripts_set_the_environment(machine: Machine) -> None:
    lead(machine, flux={"environment": {"A": "two words", "B": "$HOME'"}})
    view = machine.folder / "view"
    shown = machine.run(f'. {view}/flux-view.sh; printf "%s|" "$A" "$B" "$fluxsocket"')
    assert shown.stdout == f"two words|$HOME'|local://{view}/config/run/flux/local|"
    for name in ("flux-view.sh", "flux-connect.sh", "load-fluxion.sh"):
        assert subprocess.run(["bash", "-n", str(view / name)], check=False).returncode == 0


def test_archive_is_restored_only_if_it_exists(machine: Machine) -> None:
    archive = machine.folder / "archive.tar"
    option = f"-Scontent.restore={archive}"
    lead(machine, archive={"path": str(archive)})
    assert option not in machine.commands()[1]
    archive.touch()
    lead(machine, archive={"path": str(archive)})
    assert option in machine.commands()[-2]


def test_init_script_writes_the_configuration_once(machine: Machine) -> None:
    views = machine.folder / "opt" / "views" / "._view" / "abc" / "bin"
    views.mkdir(parents=True)
    (views / "flux").touch()
    plan = plan_of(machine, size=3, logging={"quiet": True})
    for _ in range(2):  # a restarted init container finds the files of its first run
        result = machine.run(init_script(plan))
        assert (result.returncode, result.stdout) == (0, ""), result.stderr
    view = machine.folder / "view"
    configuration = tomllib.loads((view / "config/etc/flux/config/broker.toml").read_text())
    assert configuration["bootstrap"]["hosts"] == [{"host": "flux-sample-[0-2]"}]
    assert (
        configuration["bootstrap"]["default_connect"]
        == "tcp://%h.flux-sample.ns.svc.cluster.local:%p"
    )
    assert (view / "config/etc/flux/system/hostlist").read_text() == "flux-sample-[0-2]\n"
    assert (view / "view" / "bin" / "flux").exists()
    assert (view / "flux-operator-done.txt").exists()


def test_init_script_fails_if_the_image_has_no_view(machine: Machine) -> None:
    result = machine.run(init_script(plan_of(machine)))
    assert result.returncode == 1
    assert "spec.flux.container.image" in result.stderr


def test_sidecar_waits_for_the_socket_and_runs_a_shell_command(machine: Machine) -> None:
    machine.program("sleep", f"#!/bin/bash\ntouch {machine.folder}/slept\n")
    container = {"command": "echo $fluxsocket && exit 4", "commands": {"servicePre": "echo first"}}
    plan = plan_of(machine, logging={"quiet": False}, flux={"noWaitSocket": True})
    result = machine.run(sidecar_script(plan, container))
    assert result.stdout == f"first\nlocal://{machine.folder}/view/config/run/flux/local\n"
    assert result.returncode == 4
    script = sidecar_script(plan_of(machine), container)
    assert f"socket_path={machine.folder}/view/config/run/flux/local" in script
    assert "wait_for_socket=true" in script
    assert not (machine.folder / "slept").exists()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"size": 1}, "flux-sample-[0]"),
        ({"size": 2, "maxSize": 4}, "flux-sample-[0-3]"),
        ({"flux": {"bursting": {"hostlist": "a[1-3],b"}}}, "a[1-3],b"),
        (
            {
                "flux": {
                    "bursting": {
                        "clusters": [
                            {"name": "gke", "size": 3},
                            {"name": "", "size": 0},
                            {"size": 1},
                        ]
                    }
                }
            },
            "flux-sample-[0-1],gke-[0-2],burst-1-[0-1],burst-2-[0]",
        ),
        (
            {
                "flux": {
                    "bursting": {"leadBroker": {"address": "1.2.3.4", "name": "main", "size": 2}}
                }
            },
            "main-[0-1],flux-sample-[0-1]",
        ),
    ],
)
def test_hostlist_has_all_hosts_in_order(spec: dict[str, Any], expected: str) -> None:
    assert hostlist(plan_of(**spec)) == expected


def test_bursted_cluster_connects_to_the_address_of_its_lead_broker() -> None:
    lead_broker = {"address": "1.2.3.4", "name": "main", "size": 3, "port": 9000}
    plan = plan_of(flux={"bursting": {"leadBroker": lead_broker}})
    hosts = tomllib.loads(broker_config(plan))["bootstrap"]["hosts"]
    assert hosts[0] == {"host": "main-0", "connect": "tcp://1.2.3.4:9000"}
    assert [item["host"] for item in hosts[1:]] == ["main-[1-2]", "flux-sample-[0-1]"]
    assert "lead_host=main-0\n" in wait_script(plan, plan.containers[0])


def test_values_of_the_spec_cannot_change_a_script() -> None:
    hostile = '\'; touch /tmp/x; "$(touch /tmp/y)"\n`id`'
    plan = plan_of(
        container={"command": hostile, "logs": hostile},
        flux={"optionFlags": hostile, "wrap": hostile},
    )
    script = wait_script(plan, plan.containers[0])
    header = script.split("# Shared by")[0]
    words = shlex.split(header, comments=True)
    assert f"command={hostile}" in words
    assert f"output_path={hostile}" in words
    assert f"(--wrap={hostile})" in [word.removeprefix("wrap=") for word in words]


ESCAPED = 'for rank in \\${FLUX_TASK_RANK}; do echo "$x \\`hostname\\`"; done'


@pytest.mark.parametrize(
    "container", [{"commands": {"script": ESCAPED}, "command": ""}, {"command": ESCAPED}]
)
def test_escaped_variables_are_expanded_when_the_script_runs(
    machine: Machine, container: Object
) -> None:
    lead(machine, {**container, "batch": "commands" not in container, "batchRaw": True})
    file = machine.folder / (
        "tmp/custom-entrypoint.sh" if "commands" in container else "work/flux-job.batch"
    )
    assert (
        file.read_text().splitlines()[-1]
        == 'for rank in ${FLUX_TASK_RANK}; do echo "$x `hostname`"; done'
    )


def test_raw_batch_keeps_indentation_and_empty_lines(machine: Machine) -> None:
    text = "python3 - << END\nif True:\n    print(1)\n\n\tprint(2)\nEND"
    lead(machine, {"command": f"{text}\n", "batch": True, "batchRaw": True})
    assert (machine.folder / "work" / "flux-job.batch").read_text() == f"#!/bin/bash\n{text}\n"


def test_only_the_lead_broker_is_wrapped(machine: Machine) -> None:
    machine.program("hostname", "#!/bin/bash\necho flux-sample-1\n")
    lead(machine, flux={"wrap": "strace"})
    assert "--wrap=strace" not in machine.commands()[-1]


def test_hooks_have_the_variables_of_the_go_operator(machine: Machine) -> None:
    rc_extra = "$(env | grep -c ^FLUX_RC_EXTRA=$viewroot/etc/flux/rc1.d)"
    shown = f'echo "$viewbase|$viewroot|$configroot|$fluxuid|$cfg|{rc_extra}"'
    result = lead(machine, {"commands": {"pre": shown, "post": 'env | grep "^STATE_DIR="'}})
    view = machine.folder / "view"
    expected = f"{view}|{view}/view|{view}/config|{os.getuid()}|{view}/config/etc/flux/config|1"
    assert expected in result.stdout.splitlines()
    assert result.stdout.splitlines()[-1] == f"STATE_DIR={view}/config/var/lib/flux"
    plan = plan_of(machine, flux={"noWaitSocket": True})
    sidecar = machine.run(sidecar_script(plan, {"command": "echo $viewroot:$fluxuser"}))
    assert sidecar.stdout.startswith(f"{view}/view:")


def test_sidecar_without_command_exits_with_the_code_of_its_post_hook(machine: Machine) -> None:
    plan = plan_of(machine, flux={"noWaitSocket": True})
    hooks = {"post": "fail() { return 7; }; fail"}
    results = [
        machine.run(sidecar_script(plan, {"command": text, "commands": hooks}))
        for text in ("", "true")
    ]
    assert [result.returncode for result in results] == [7, 0]


def test_sidecar_writes_the_view_script_only_if_there_is_none(machine: Machine) -> None:
    plan = plan_of(machine, flux={"noWaitSocket": True})
    file = machine.folder / "view" / "flux-view.sh"
    result = machine.run(sidecar_script(plan, {"command": f"grep -c fluxsocket= {file}"}))
    assert result.stdout == "1\n"
    file.write_text("A=2")
    assert machine.run(sidecar_script(plan, {"command": f". {file}; echo $A"})).stdout == "2\n"
    lead(machine)
    assert "fluxsocket=" in file.read_text()
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []
