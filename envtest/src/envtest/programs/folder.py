"""The folder for ``KUBEBUILDER_ASSETS``: the programs of a control plane, and ``kubectl`` if it is installed.

The programs are scripts that start this Python interpreter with the module search path of the process that wrote them,
and with the Kubernetes version. So they need no environment variables and skip the start-up of ``site``.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import envtest
from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion

__all__ = ["write_programs"]

_PROGRAMS = {
    "etcd": "etcd",
    "kube-apiserver": "kube_apiserver",
    "kube-controller-manager": "kube_controller_manager",
}
_SCRIPT = """#!/bin/sh
# Written by "envtest assets"; the arguments are those of the program {name} of Kubernetes.
exec {python} -I -S -c {code} "$@"
"""
_CODE = """import sys
sys.path[:] = {path!r}
from envtest.programs.{module} import main
sys.exit(main(sys.argv[1:]{arguments}))"""


def write_programs(folder: Path | None = None, version: KubernetesVersion = LATEST) -> Path:
    """Write the programs to ``folder``, by default one in the user's cache folder; return its path.

    ``version`` is the version that ``kube-apiserver`` behaves like.

    Existing files of these names are replaced if this function has written them. Raises OSError; FileExistsError,
    before anything is written, for a file that it has not written.
    """
    if os.name != "posix":
        raise OSError("the programs need Unix sockets and a POSIX shell")
    contents = {name: _script(name, module, version) for name, module in _PROGRAMS.items()}
    kubectl = shutil.which("kubectl")
    target = folder if folder is not None else _cache_folder(contents, kubectl)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in contents:
        file = target / name
        if os.path.lexists(file) and not _is_own(file):
            raise FileExistsError(f"{file} exists and was not written by envtest")
    for name, content in contents.items():
        _replace(target / name, content)
    if kubectl is not None and not os.path.lexists(target / "kubectl"):
        (target / "kubectl").symlink_to(Path(kubectl).absolute())
    return target.absolute()


def _script(name: str, module: str, version: KubernetesVersion) -> str:
    root = str(Path(envtest.__file__).resolve().parents[1])
    dropped = {Path.cwd(), Path(sys.argv[0]).absolute().parent}
    found = (Path(entry).absolute() for entry in sys.path)
    path = list(dict.fromkeys([root, *(str(entry) for entry in found if entry not in dropped)]))
    arguments = f", {str(version)!r}" if name == "kube-apiserver" else ""
    code = _CODE.format(path=path, module=module, arguments=arguments)
    return _SCRIPT.format(name=name, python=shlex.quote(sys.executable), code=shlex.quote(code))


def _cache_folder(contents: dict[str, str], kubectl: str | None) -> Path:
    """Return a folder whose name depends on the content: the Python environment and the Kubernetes version."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256("\0".join([*contents.values(), kubectl or ""]).encode()).hexdigest()[
        :16
    ]
    return base / "envtest" / "assets" / digest


def _is_own(file: Path) -> bool:
    with file.open("rb") as content:
        return b'Written by "envtest assets"' in content.read(200)


def _replace(file: Path, content: str) -> None:
    """Write an executable file in one step: another process may be starting it."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    new = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(content)
        new.chmod(0o755)
        new.replace(file)
    except BaseException:
        new.unlink()
        raise
