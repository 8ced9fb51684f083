"""Releases all distributions together, with one version; ``docs/releasing.md`` describes the process.

    python -m hack.release v1.2.0 --partial          # check, and print the plan
    python -m hack.release v1.2.0 --partial --run    # release

:mod:`~hack.release.command` reads the command line, :mod:`~hack.release.request` validates it,
:mod:`~hack.release.checks` checks the repository, :mod:`~hack.release.tree` writes the release into a worktree and
moves the branch to it, :mod:`~hack.release.plan` describes it. The data: :mod:`~hack.release.versions` (both
distributions), :mod:`~hack.release.stack` (components), :mod:`~hack.release.history` (earlier releases) and
:mod:`~hack.release.changelogs`.

This package does not import :mod:`hack.generate`; it runs it as a command in the worktree.
"""
