"""The version of this release; every other place reads it from here."""

__version__ = "0.1.0"
