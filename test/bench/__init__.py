"""Benchmarks of cfo and its peers: CPU time, memory and requests, measured in separate processes.

``scenarios`` are the benchmarks and ``harness`` runs them. ``api_server`` and ``operators`` start the API server and
the measured operator; ``peers`` are other programs to measure. ``results`` are the JSON files of runs; ``table`` prints
them, and ``report`` writes them to ``docs/performance.md`` (``targets``, ``page``, ``charts``, ``plots``).
"""
