"""Controllers: sources, handlers, predicates, the work queue and reconciles."""
