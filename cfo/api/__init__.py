"""Typed models of the APIs that cfo owns, and the CustomResourceDefinitions that come from them."""
