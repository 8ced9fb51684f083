"""Who asks, and may they: authentication, impersonation, RBAC and the review APIs of the embedded API server."""
