"""The behaviours that suites for durable functions check, one test each; the names are the checklist.

``python -m tests.conformance`` prints it. Each runs in two lives: ``straight``, where every decision is taken twice
from nothing, and ``killed``, where the process of every turn dies once before it commits; and at its end each run's
journal is replayed from nothing. What there is to check was learned from the suites of AWS's durable execution SDKs,
Temporal's features and Azure's durable task libraries.
"""
