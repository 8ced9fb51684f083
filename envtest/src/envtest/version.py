"""The version of this release, the same as that of ``cfo``; ``python -m hack.release`` writes both."""

__version__ = "0.1.0"
