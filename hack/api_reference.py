"""The pages of the API reference, one for each package of ``cfo.runtime`` and one for ``envtest``.

They are directives of mkdocstrings, which ``make docs`` replaces by signatures and docstrings. It reads the sources and
imports nothing, so each name is given with the module that defines it: the packages import their names on first use.
"""

from __future__ import annotations

from collections import defaultdict

from hack.generate.public_api import exported_names

FOLDER = "docs/reference"


def pages() -> dict[str, str]:
    """Return the Markdown of each page, by its path in the site."""
    entries: dict[str, list[str]] = defaultdict(list)
    for module, names in exported_names().items():
        entries[module.partition(".")[0]] += [f"cfo.runtime.{module}.{name}" for name in set(names)]
    envtest = "# envtest\n\n::: envtest\n    options: {inherited_members: true, show_root_heading: false}\n"
    found = {f"{FOLDER}/envtest.md": envtest}
    for package, paths in entries.items():
        title = f"# cfo.runtime.{package}\n\n::: cfo.runtime.{package}\n"
        options = "    options: {members: false, show_root_heading: false}\n"
        by_name = sorted(paths, key=lambda path: path.rpartition(".")[2].lower())
        found[f"{FOLDER}/{package}.md"] = "\n".join(
            [title + options, *(f"::: {path}\n" for path in by_name)]
        )
    return found
