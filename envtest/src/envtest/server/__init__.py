"""The API server: the chain of filters, routing to handlers, and the creation of all parts."""
