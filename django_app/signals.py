"""Django signals for what happens to instances; connect in ``AppConfig.ready()`` as with any signal.

Each is sent after the commit of what it tells, in the process that committed, by ``send_robust``: a receiver that
raises is logged and changes nothing. A process killed between commit and sending does not send, so nothing that must
happen may hang on them: make it a step. The sender is ``django_app.models.WorkflowInstance``. All carry
``instance_id`` (the chain's id, a UUID), ``workflow`` (its name) and ``key`` (or None).
"""

from __future__ import annotations

from django.dispatch import Signal

# The first turn is committed.
workflow_started = Signal()

# A final state is reached. ``state`` is it: COMPLETED, FAILED, CANCELLED or TERMINATED.
workflow_finished = Signal()

# A bug or a mismatch stopped the body. ``waiting_for`` holds the error in words.
workflow_blocked = Signal()

# A step has no further attempt. ``step``, ``position``, ``attempts``, ``error_type``, ``message``.
step_failed = Signal()

# Open for longer than the workflow's ``expected``, or waiting for a signal for longer than its ``warn_after``. The tick
# sends it once, within seconds, and again if another wait becomes late. ``since`` is when it became so.
instance_stuck = Signal()
