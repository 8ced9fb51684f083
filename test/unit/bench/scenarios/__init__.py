"""Benchmarks for the tests of the harness."""
