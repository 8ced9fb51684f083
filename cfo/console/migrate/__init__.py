"""``cfo migrate``: moves what this operator, or the Go operator, manages to another one. A package for each kind."""
