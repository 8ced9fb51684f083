"""Admission: the built-in plugins, webhooks and policies that can change or reject a write before it is stored."""
