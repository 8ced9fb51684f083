"""Typed resources: classes that declare kinds, and their CRDs. Only the modules that need pydantic import it."""
