"""Authentication, impersonation, RBAC authorization and the review APIs of the embedded API server."""
