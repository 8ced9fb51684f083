"""The pages of the API reference: for each package of ``cfo.runtime``, for ``envtest`` and for ``cfo_handlers``.

They are directives of mkdocstrings, which ``make docs`` replaces by signatures and docstrings. It reads the sources and
imports nothing, so each name is given with the module that defines it: the packages import their names on first use.
"""

from __future__ import annotations

from collections import defaultdict

from hack import ROOT
from hack.generate.public_api import exported_names

FOLDER = "docs/reference"
HANDLERS = ROOT / "handlers" / "src" / "cfo_handlers"


def pages() -> dict[str, str]:
    """Return the Markdown of each page, by its path in the site."""
    entries: dict[str, list[str]] = defaultdict(list)
    for module, names in exported_names().items():
        package = f"cfo.runtime.{module.partition('.')[0]}"
        entries[package] += [f"cfo.runtime.{module}.{name}" for name in set(names)]
    for module, names in exported_names(HANDLERS).items():
        entries["cfo_handlers"] += [f"cfo_handlers.{module}.{name}" for name in set(names)]
    envtest = "# envtest\n\n::: envtest\n    options: {inherited_members: true, show_root_heading: false}\n"
    found = {f"{FOLDER}/envtest.md": envtest}
    for package, paths in entries.items():
        title = f"# {package}\n\n::: {package}\n"
        options = "    options: {members: false, show_root_heading: false}\n"
        by_name = sorted(paths, key=lambda path: path.rpartition(".")[2].lower())
        found[f"{FOLDER}/{package.rpartition('.')[2]}.md"] = "\n".join(
            [title + options, *(f"::: {path}\n" for path in by_name)]
        )
    return found
