"""Writes the tables and plots of benchmark results to ``docs/performance.md``.

See that page and ``python -m hack.bench_report --help``. Run it from the root of the repository: from elsewhere,
``import test`` would import the package of Python's standard library.
"""

from test.bench.report import command

if __name__ == "__main__":
    command(prog_name="hack.bench_report")
