"""The APIs that cfo owns, as typed models with their CRDs, and accessors for the APIs that it reads."""
