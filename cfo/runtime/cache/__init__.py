"""Informers and the shared cache: list and watch, objects stored as bytes, indexes, reads without requests."""
