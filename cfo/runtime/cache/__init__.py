"""Informers and the shared cache: list and watch, objects stored as bytes, indexes, and reads without requests."""
