"""Every fault point: its name and where a process is when it reaches it. ``docs/faults.md`` shows the same table."""

from __future__ import annotations

from collections.abc import Mapping

POINTS: Mapping[str, str] = {
    # whoever starts, sends and steers
    "start.in_transaction": "an instance is inserted, not committed",
    "start.after_commit": "a start is committed, no worker hinted at it",
    "send.in_transaction": "a signal, update or request to end is inserted, not committed",
    "send.after_commit": "a signal is committed, no worker hinted at it",
    "update.after_commit": "an update is committed, no worker hinted at it",
    "cancel.after_commit": "a cancel, or the end of execution_timeout, is committed, no worker hinted at it",
    "steer.in_transaction": "a terminate, pause, resume, retry, skip or fork is written, not committed",
    "steer.after_commit": "a terminate, resume, retry, skip, fork or end of a step from outside is committed, no "
    "worker hinted at it",
    # an attempt
    "claim.before": "a message for a step is here, nothing claimed",
    "claim.in_statement": "at the UPDATE that claims, which is tried again after a deadlock",
    "claim.after_commit": "the claim is committed, not read back",
    "body.before": "the arguments are read, the body not entered",
    "body.after": "the body has returned, nothing stored",
    "heartbeat.before": "a heartbeat of the body is about to be written",
    "record.before": "the end of an attempt is about to be stored",
    "step.in_transaction": "the end of an attempt is written, not committed",
    "record.after": "the end of an attempt is committed, no turn follows yet",
    "atomic.before_commit": "body and result of an atomic step are written, not committed",
    "atomic.after_commit": "an atomic step is committed, no turn follows yet",
    # a turn
    "turn.before_body": "an instance is loaded, its body not entered",
    "turn.before_commit": "the turn is decided, nothing written",
    "turn.begins": "the transaction of a turn is open, nothing written",
    "turn.swapped": "the revision is compared and swapped",
    "turn.children_in_transaction": "the children a turn starts are inserted, not committed",
    "turn.related": "children and parent are written, the rows of the turn not",
    "turn.members_in_transaction": "the rows of a turn and one list of map members are inserted, not committed",
    "turn.successor_in_transaction": "the next run of a chain is inserted, not committed",
    "turn.in_transaction": "all of a turn is written, nothing committed",
    "turn.after_commit": "a turn is committed, nothing published",
    # publishing
    "publish.before": "a turn is about to hand out what it committed",
    "publish.after": "a turn has handed out what it committed",
    "message.turn": "one message that asks for a turn is about to be sent",
    "message.step": "one message for a step is about to be sent",
    "map.before_page": "one page of map members is about to be sent",
    "map.after_page": "one page of map members is sent",
    "children.before_wake": "another instance, started or told something by a turn, is about to be hinted at",
    "continue.after_commit": "a run has continued as new, the new run not begun",
    # the clock
    "lease.before_renewal": "a worker is about to renew its lease, or to take one",
    "lease.after_renewal": "a lease is renewed or taken",
    "tick.begins": "a process has won a tick, nothing done",
    "tick.before_act": "a tick is about to act on one row",
    "tick.judged": "a tick has judged one step, written nothing",
    "tick.after_act": "a tick has acted on one row",
    "tick.ends": "a tick has acted on all rows",
    # purging
    "purge.before_batch": "a purge is about to delete one batch",
    "purge.in_transaction": "a batch is deleted, not committed",
    "purge.after_batch": "a batch is deleted for good",
}

MESSAGES = ("message.turn", "message.step")
OWN = "app."  # points with this prefix belong to whoever reaches them
