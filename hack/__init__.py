"""Tools for developers and releases; run them from the root of the repository, as the Makefile does.

* :mod:`hack.release`: ``python -m hack.release`` releases both distributions.
* :mod:`hack.generate`: ``python -m hack.generate`` writes the files that are generated from code.
* :mod:`hack.load`: ``python -m hack.load 12 make test`` runs a command on a machine that is busy with 12 processes.
* :mod:`hack.prose`: ``python -m hack.prose`` rejects words that ``docs/style.md`` replaces.
* :mod:`hack.patterns`: ``python -m hack.patterns`` rejects regular expressions that take more than linear time.
* :mod:`hack.conversions`: ``python -m hack.conversions`` rejects conversions of text outside of the bounded parsers.
* :mod:`hack.bench_report`: ``python -m hack.bench_report`` writes benchmark results to ``docs/performance.md``.

The folder ``plugins`` contains a plugin of pytest, for ``make test``.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The root of the repository."""
