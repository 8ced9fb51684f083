"""HTTP handlers: one module a verb family."""
