"""Served resources with the hooks of their kinds, the metadata of their objects, selectors and the stored version."""
