"""``cfo new``: writes the project of a new operator."""
