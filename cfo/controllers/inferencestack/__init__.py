"""The controllers of InferenceStacks: a gateway and applications, as Deployments with their configuration.

:mod:`.rendering` computes the objects of a stack, :mod:`.profile_choice` with which defaults. :mod:`.reconciler`
observes, writes (:mod:`.writes`, :mod:`.children`, :mod:`.ownership`) and reports: :mod:`.status` is a pure function of
the Deployments' states and the pods' failures (:mod:`.pods`).
:mod:`.claims` reports stacks that no operator reconciles, according to the Leases of all operators
(:mod:`.operator_leases`).
"""

from cfo.controllers.inferencestack.setup import RULES, election_rules, setup

__all__ = ["RULES", "election_rules", "setup"]
