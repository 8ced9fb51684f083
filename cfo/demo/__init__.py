"""``cfo run --embedded``: the operator on a control plane of its own, with stand-ins for what it needs."""
