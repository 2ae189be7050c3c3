"""Guards of messages."""

from __future__ import annotations

from tests.mutations.guard import BOTH, SERVERS, Guard

MESSAGES = "django_app/store/messages.py"
TURN_ROWS = "django_app/store/turns.py"
SWEEPS = "durable_celery/sweeps.py"

OF_MESSAGES = (
    Guard(
        name="the mailbox at close: what came after the load",
        path=TURN_ROWS,
        old="        if self.unseen_messages(chain_id, commit.last_message, commit.left_messages):\n",
        new="        if False:\n",
        noticed_by=("tests/store/test_closing.py::test_a_message_that_came_after_the_load_keeps_the_instance_open",),
        pairs=BOTH,
    ),
    Guard(
        name="the mailbox at close: its lock against senders",
        path=TURN_ROWS,
        old="        self.hold_mailbox(chain_id)\n",
        new="",
        noticed_by=("tests/store/test_closing.py::test_a_turn_does_not_close_while_a_sender_is_at_the_mailbox",),
        pairs=SERVERS,
    ),
    Guard(
        name="a closed mailbox takes no message",
        path=MESSAGES,
        old="        if closed_at is not None:\n",
        new="        if False:\n",
        noticed_by=(
            "tests/store/test_messages.py::test_a_message_to_an_ended_instance_is_refused_and_the_transaction_usable",
        ),
    ),
    Guard(
        name="senders lock the mailbox",
        path=MESSAGES,
        old="cursor.execute(sql + SHARED[self.vendor], params)",
        new="cursor.execute(sql, params)",
        noticed_by=("tests/store/test_closing.py::test_a_turn_does_not_close_while_a_sender_is_at_the_mailbox",),
        pairs=SERVERS,
    ),
    Guard(
        name="a message with the id of another is stored once",
        path=MESSAGES,
        old="dedupe_hash=None if new.dedupe is None else dedupe_hash(new.kind, new.dedupe),",
        new="dedupe_hash=None,",
        noticed_by=(
            "tests/store/test_messages.py::test_a_duplicate_message_is_stored_once_and_hints_until_it_is_taken",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="the tick looks for messages that no turn took in",
        path=SWEEPS,
        old="rt.store.due_messages(now, BATCH)",
        new="()",
        noticed_by=("tests/engine/test_lost_hints.py::test_a_signal_whose_hint_is_lost_is_taken_in_by_the_clock",),
    ),
    Guard(
        name="a handler hears what was accepted before the end",
        path="durable_celery/core/replay.py",
        old="    if missed and not recorded_only:\n",
        new="    if False:\n",
        noticed_by=(
            "tests/engine/test_handlers.py::test_a_signal_between_the_last_outcome_and_its_turn_is_heard_once",
        ),
        pairs=BOTH,
    ),
)
