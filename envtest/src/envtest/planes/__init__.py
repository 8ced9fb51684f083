"""The control planes, embedded and real, their snapshots and traces, and the public ``ControlPlane``."""
