"""The version of this release; ``python -m hack.release`` writes it here and in ``envtest``."""

__version__ = "0.1.0"
