"""What nodes and pods do without kubelets and containers: pure functions of objects, a scenario's data and the time.

The controllers ``scheduler``, ``nodes`` and ``kubelet`` write their results. The data of a scenario is in ``model``;
``envtest.scenarios`` reads it.
"""
