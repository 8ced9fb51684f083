"""The version of the distribution, always equal to that of ``cfo``; ``hack/release`` writes both."""

__version__ = "0.1.0"
