"""The rules as one table: the documentation's page and the ids of the checks are this. Pure."""

from __future__ import annotations

from typing import Final

from durable_celery.lints import leaving, outside, sending, sets, yields
from durable_celery.lints.finding import Rule

OTHER_VALUE = "on replay the body would see another value and no longer fit its journal"
AGAIN = "it would happen again at each replay"

RULES: Final = (
    Rule(
        number=101, name="clock", look=outside.clocks,
        why=OTHER_VALUE,
        instead="write now() of durable_celery: the time of the turn, the same on replay",
    ),
    Rule(
        number=102, name="dice", look=outside.dice,
        why=OTHER_VALUE,
        instead="write random() of durable_celery, a random.Random seeded by the run: random().choice(...)",
    ),
    Rule(
        number=103, name="uuid", look=outside.uuids,
        why=OTHER_VALUE,
        instead="write uuid4() of durable_celery",
    ),
    Rule(
        number=104, name="environment", look=outside.environment,
        why="it differs from process to process, so replay elsewhere would not fit the journal",
        instead="pass it as an argument, read it in a step, or write side_effect(lambda: ...), which records it once",
    ),
    Rule(
        number=105, name="threads", look=outside.threads,
        why=AGAIN + ", and nothing waits for its end",
        instead="move it into a step; to run things side by side write gather(...)",
    ),
    Rule(
        number=106, name="network", look=outside.network,
        why=AGAIN + ", and its answer is not recorded",
        instead="move it into a step: it is retried, and its result recorded",
    ),
    Rule(
        number=107, name="task sending", look=sending.sending,
        why="the message would be sent again at each replay, and nothing waits for its result",
        instead="write yield from canvas(task.s(...)), or yield from step(...)",
    ),
    Rule(
        number=108, name="set order", look=sets.sets,
        why="the order of a set differs from process to process, so replay would not fit the journal",
        instead="write sorted(...) around it",
    ),
    Rule(
        number=109, name="plain code in finally", look=leaving.plain_finally,
        why="it may run at each suspension, not only at the end: between turns the body is closed where it stands",
        instead="move it into a step and yield that: yield from cleanup(...) runs once, at the real end",
    ),
    Rule(
        number=110, name="endless wait", look=yields.endless_waits,
        why="if the message never comes nobody is told, and the instance waits for ever",
        instead="write wait(timeout=...), or wait(warn_after=...) to be warned and wait on",
    ),
    Rule(
        number=111, name="list yielded", look=yields.lists,
        why="it is refused at run time, and blocks the instance",
        instead="write yield from gather(a, b)",
    ),
    Rule(
        number=112, name="cancel swallowed", look=leaving.swallowing,
        why="it holds a cancel, a time-out and the closing of the body between turns as well",
        instead="write except Exception, or raise at the end of the handler",
    ),
)  # fmt: skip
