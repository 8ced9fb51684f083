"""Informers and the cache that shares them: list, watch, bytes, indexes, reads without requests."""
