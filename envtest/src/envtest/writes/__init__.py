"""The write path of the generic registry: creation, update and deletion, and the state that all handlers share."""
