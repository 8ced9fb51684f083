"""HTTP handlers, one module for each group of verbs or subresources."""
