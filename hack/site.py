"""Hooks with which mkdocs builds the site from the Markdown pages of the whole repository (``make docs``).

The site has the layout of the repository: ``docs/install.md`` is the page ``docs/install.html``, and the links between
pages work in the repository and in the site. Links to other files and folders are replaced by links to the repository's
web page. mkdocs reports links to files that do not exist, and anchors that no page has, as errors (``--strict``).

The API reference (:mod:`hack.api_reference`) is only in the site.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hack.api_reference import pages

_PAGES = ("*.md", "docs/images/")
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>(?:~[\w.]*\.|\.)?")
_CODE_BLOCK = re.compile(r"<p>\.\. code-block:: \w+</p>")
_FENCE = re.compile(r"^( *```.*?^ *```$)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Replace the files of ``docs`` with all pages and images of the repository, and keep the theme's files."""
    root = Path(config.config_file_path).parent
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *_PAGES]
    listed = subprocess.run(
        command, cwd=root, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    theme = [file for file in files if file.src_dir != config.docs_dir]
    own = [
        File(path, str(root), config.site_dir, config.use_directory_urls)
        for path in listed
        if (root / path).is_file()
    ]
    reference = [File.generated(config, path, content=text) for path, text in pages().items()]
    return Files([*theme, *own, *reference])


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files and folders that are not pages of the site point to the repository's web page."""
    root = Path(config.config_file_path).parent
    folder = PurePosixPath(page.file.src_uri).parent

    def rewrite(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        if files.get_file_from_path(target) is not None:
            return match[0]
        if files.get_file_from_path(f"{target}/README.md") is not None:
            return posixpath.join(match[1], "README.md") + (match[2] or "")
        if target.startswith("..") or not (root / target).exists():
            return match[0]  # mkdocs reports it
        kind = "tree" if (root / target).is_dir() else "blob"
        return f"{config.extra['repository']}/{kind}/main/{target}{match[2] or ''}"

    parts = _FENCE.split(markdown)
    # The odd parts are code blocks.
    for index in range(0, len(parts), 2):
        parts[index] = _LINK.sub(rewrite, parts[index])
    return "".join(parts)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove what only Sphinx understands in docstrings: roles, and the heads of code blocks."""
    return _CODE_BLOCK.sub("", _ROLE.sub("<code>", html))
