"""Paths that are not resources: discovery, OpenAPI, health, metrics and the pages of envtest."""
