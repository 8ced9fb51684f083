"""Tests of the benchmark harness and its report."""
