"""Tests of the tools in `hack/`."""
