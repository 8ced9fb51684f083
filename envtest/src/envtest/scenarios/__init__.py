"""Scenarios: which nodes a control plane has, what happens to pods, and what exec, logs and port-forward answer.

A scenario is data (:mod:`~envtest.scenarios.loader` reads it), to which a test adds callbacks
(:class:`~envtest.scenarios.scenario.Scenario`). The rules of nodes and pods are pure functions of it and the time;
the controllers ``scheduler``, ``nodes`` and ``kubelet`` write their results.
"""
