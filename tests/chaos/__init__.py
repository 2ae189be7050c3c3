"""Mixed workflows while everything around them breaks, and an oracle that counts: see ``python -m tests.chaos --help``.

``plan`` makes, of a seed, what is started and sent and what breaks when. ``driver`` starts and sends, in a process of
its own; ``fleet`` runs workers and Beats; ``faults`` breaks them and the services. What happens to the outside world is
written by the bodies into the ``ledger``. At the end ``books`` reads everything there is, and ``oracle`` judges it.
As an app of the tests' project (TEST_APPS) it brings the workflows, steps and tasks that are run.
"""
