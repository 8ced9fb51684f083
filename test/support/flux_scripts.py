"""What the scripts of MiniClusters do, as recorded in ``flux_scripts.yaml``.

``python -m test.support.flux_scripts`` records again; review the difference.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cfo.controllers.flux.fluxjob.rendering import desired_minicluster
from cfo.controllers.flux.minicluster.plan import Plan
from cfo.controllers.flux.minicluster.scripts import script_files
from cfo.runtime.objects.unstructured import Object, name_of
from test.support.flux_machine import Call, Machine

FILE = Path(__file__).with_name("flux_scripts.yaml")
_SAMPLES = Path(__file__).parents[2] / "config" / "samples" / "all"
_FROM_THE_SHELL = {"_", "CALLS", "OLDPWD", "PWD", "SHLVL"}


def examples() -> Iterator[Object]:
    """Yield the MiniClusters: those of the samples and of their FluxJobs, and those that the file has."""
    yield from yaml.safe_load_all((_SAMPLES / "flux-minicluster.yaml").read_text())
    setup, job, *_ = yaml.safe_load_all((_SAMPLES / "flux-queue.yaml").read_text())
    yield desired_minicluster(job | {"metadata": {**job["metadata"], "uid": "1"}}, setup)
    for name, recorded in load().items():
        if "spec" in recorded:
            yield {"metadata": {"name": name, "namespace": "default"}, "spec": recorded["spec"]}


def load() -> dict[str, Any]:
    """Return the recordings by the name of the MiniCluster."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def record(cluster: Object, folder: Path) -> dict[str, Any]:
    """Run all scripts of a MiniCluster, and return what they do, with paths relative to the container's root."""
    spec = cluster["spec"]
    view = {**(spec.get("flux") or {}).get("container", {}), "mountPath": str(folder / "view")}
    plan = Plan.of(
        {**cluster, "spec": {**spec, "flux": {**(spec.get("flux") or {}), "container": view}}}
    )
    found = {}
    for file, script in sorted(script_files(plan).values()):
        roles = {"wait": ("lead", "follower"), "star": ("sidecar",)}.get(file[:4], ("init",))
        for role in roles:
            found[f"{file} of the {role}" if len(roles) > 1 else file] = _run(
                folder, cluster, script, role
            )
    return found


def _run(folder: Path, cluster: Object, script: str, role: str) -> dict[str, Any]:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    machine = Machine(folder)
    host = f"{name_of(cluster)}-{1 if role == 'follower' else 0}"
    machine.program("hostname", f"#!/bin/bash\necho {host}\n")
    (folder / "opt" / "views" / "._view" / "abc").mkdir(parents=True)
    result = machine.run(script)
    assert result.stderr == "", result.stderr
    before = machine.environment
    calls = []
    for call in machine.calls():
        calls.append(_described(call, before, folder))
        before = call.environment
    written = [
        path
        for name in ("work", "tmp", "view/config/etc")
        for path in sorted((folder / name).rglob("*"))
    ]
    files = {f"/{path.relative_to(folder)}": path.read_text() for path in written if path.is_file()}
    contents = {name: _relative(text, folder) for name, text in files.items() if text}
    return {
        "exitCode": result.returncode,
        "calls": calls,
        **({"files": contents} if contents else {}),
    }


def _described(call: Call, before: dict[str, str], folder: Path) -> dict[str, Any]:
    changed = {
        key: _relative(value.replace(os.environ["PATH"], "$PATH"), folder)
        for key, value in sorted(call.environment.items())
        if key not in _FROM_THE_SHELL and before.get(key) != value
    }
    described = {"command": _relative(shlex.join(["flux", *call.arguments]), folder)}
    if call.directory != str(folder / "work"):
        described["directory"] = _relative(call.directory, folder)
    return described | ({"environment": changed} if changed else {})


def _relative(text: str, folder: Path) -> str:
    return text.replace(str(folder), "")


def _block_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


def main() -> None:
    """Record all examples again."""
    old, new = load(), {}
    for cluster in examples():
        kept = {
            key: old[name_of(cluster)][key]
            for key in ("spec",)
            if key in old.get(name_of(cluster), {})
        }
        with tempfile.TemporaryDirectory() as folder:
            new[name_of(cluster)] = {**kept, "runs": record(cluster, Path(folder))}
    yaml.SafeDumper.add_representer(str, _block_text)
    FILE.write_text(yaml.safe_dump(new, sort_keys=False, width=110))


if __name__ == "__main__":
    main()
