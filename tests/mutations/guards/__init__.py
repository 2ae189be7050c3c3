"""The guards, by what they are of."""

from __future__ import annotations

from tests.mutations.guards.attempts import OF_ATTEMPTS
from tests.mutations.guards.bounds import OF_ENDS, OF_STARTS
from tests.mutations.guards.clock import OF_PROCESSES, OF_THE_CLOCK
from tests.mutations.guards.messages import OF_MESSAGES
from tests.mutations.guards.turns import OF_LOST_TURNS, OF_TURNS

GUARDS = (*OF_ATTEMPTS, *OF_TURNS, *OF_LOST_TURNS, *OF_MESSAGES, *OF_THE_CLOCK, *OF_PROCESSES, *OF_STARTS, *OF_ENDS)
