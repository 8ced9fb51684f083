"""Typed models and CRDs of the APIs that cfo owns, and accessors for APIs that it reads."""
