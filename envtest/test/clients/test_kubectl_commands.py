"""The commands of kubectl, with what they print: one transcript for each subject, in a namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from test.clients.transcript import matches, parse

HERE = Path(__file__).parent
TRANSCRIPTS = sorted((HERE / "kubectl").glob("*.txt"))
SECONDS = 30
"""The longest time of one command."""

pytestmark = [
    pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not on the PATH"),
    pytest.mark.timeout(180),
]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_kubectl_prints(path: Path, kubeconfig: Path, tmp_path: Path) -> None:
    shutil.copytree(HERE / "manifests", tmp_path, dirs_exist_ok=True)
    copy = tmp_path / "kubeconfig"
    copy.write_text(kubeconfig.read_text())
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(kubeconfig.parent),  # one cache of the discovery for all transcripts
        "KUBECONFIG": str(copy),
        "KUBE_EDITOR": "sed -i s/before/after/",
        "NO_PROXY": "127.0.0.1",
    }
    namespace = path.stem
    prepare = f"kubectl create namespace {namespace} && kubectl config set-context --current --namespace={namespace}"
    wrong = []
    for number, step in enumerate([*parse(f"$ {prepare}\n...\n"), *parse(path.read_text())]):
        done = subprocess.run(
            ["/bin/sh", "-c", step.command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=tmp_path,
            env=environment,
            timeout=SECONDS,
            check=False,
        )
        lines = done.stdout.decode().splitlines()
        if done.returncode != step.code or not matches(step.output, lines):
            printed = "\n".join(lines)
            wrong.append(f"{number}: $ {step.command}\n{printed}\n[{done.returncode}]")
    assert not wrong, "\n\n".join(wrong)
