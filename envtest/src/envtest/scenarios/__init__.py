"""Scenarios: the nodes of a control plane, the behavior of its pods, and what exec, logs and port-forward answer.

A scenario is data (:mod:`~envtest.scenarios.loader` reads it), to which a test adds callbacks
(:class:`~envtest.scenarios.scenario.Scenario`). The API server does not import this package: a control plane passes
it the scenario as a :class:`~envtest.simulation.protocol.Simulation`.
"""
