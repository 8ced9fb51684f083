"""Tests of what tenants with few permissions can do to the operator and to each other."""
