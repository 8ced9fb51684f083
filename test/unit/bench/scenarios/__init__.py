"""Benchmarks that cost nothing, for the harness to run in the processes of its own."""
