"""The version of the distribution, the same as that of ``cfo``; ``hack/release`` writes both."""

__version__ = "0.1.0"
