"""Unmodified foreign clients against the embedded control plane; ``make test-clients`` installs and runs them."""
