"""The version of this release, which equals the version of ``cfo``; ``python -m hack.release`` writes both."""

__version__ = "0.1.0"
