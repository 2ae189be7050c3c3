"""A cancel at a random moment of a purchase, so many times: never charged without refund or delivery.

    TEST_DB=postgres TEST_BROKER=redis python -m benchmarks.cancel_offsets --purchases 500

Each purchase charges, with a compensation, and delivers. A cancel is sent at a random offset from its start, from
another process than the one that runs it. The variables are those of the tests (tests/project/surroundings.py).
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

AT_ONCE = 4  # purchases under way
BEYOND = 3.0  # the latest cancel, in times of an undisturbed purchase
PATIENCE = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--purchases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.project.settings")
    import django

    from tests.project import surroundings

    surroundings.prepare()
    django.setup()
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        outcomes = buy_and_cancel(options.purchases, options.seed)
        wrong = sum(count for (what, _), count in outcomes.items() if what.startswith("WRONG"))
        print(f"{surroundings.DATABASE}, {surroundings.BROKER}, seed {options.seed}")
        for (what, state), count in sorted(outcomes.items()):
            print(f"{count:6}  {state:<10} {what}")
        print(f"cancel offsets: {options.purchases} purchases, {wrong} charged without refund or delivery")
        return 1 if wrong else 0
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


def buy_and_cancel(purchases: int, seed: int) -> Counter[tuple[str, str]]:
    """What became of each purchase, and the state of its instance."""
    from tests.processes import start_worker
    from tests.project.testapp.case_cancelling import purchase

    dice = random.Random(seed)
    answers: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        worker = start_worker(Path(folder) / "worker.log").wait_until_ready()
        try:
            longest = BEYOND * statistics.median(_undisturbed(answers) for _ in range(5))
            due: list[tuple[float, str, object]] = []
            for number in range(purchases):
                run = f"p{number}-{uuid.uuid4().hex[:8]}"
                handle = purchase.start(run)
                due.append((time.monotonic() + dice.uniform(0, longest), run, handle))
                while len(due) >= AT_ONCE:
                    _cancel_first(due, answers)
            while due:
                _cancel_first(due, answers)
            return _outcomes(answers)
        finally:
            worker.clear()


def _undisturbed(answers: dict[str, str]) -> float:
    from tests.project.testapp.case_cancelling import purchase

    run, began = f"whole-{uuid.uuid4().hex[:8]}", time.monotonic()
    purchase.start(run).result(timeout=PATIENCE)
    answers[run] = "COMPLETED"
    return time.monotonic() - began


def _cancel_first(due: list[tuple[float, str, object]], answers: dict[str, str]) -> None:
    due.sort(key=lambda item: item[0])
    at, run, handle = due.pop(0)
    time.sleep(max(0.0, at - time.monotonic()))
    answers[run] = handle.cancel("changed my mind")  # type: ignore[attr-defined]


def _outcomes(answers: dict[str, str]) -> Counter[tuple[str, str]]:
    from django_app.models import WorkflowInstance
    from durable_celery import codec
    from tests.processes import eventually
    from tests.project.testapp.models import Effect

    eventually(lambda: not WorkflowInstance.objects.open().exists(), "the end of every purchase", seconds=PATIENCE)
    found: Counter[tuple[str, str]] = Counter()
    for args, state in WorkflowInstance.objects.values_list("args", "state"):
        run = codec.decode(args)[0][0]
        effects = Counter(Effect.objects.filter(run=run).values_list("what", flat=True))
        found[_judge(effects, state, answers[run]), state] += 1
    return found


def _judge(effects: Counter[str], state: str, answer: str) -> str:
    done = ", ".join(f"{what} {count}" for what, count in sorted(effects.items())) or "nothing"
    ends_as_told = state == ("CANCELLED" if answer == "requested" else answer)
    served = effects["refund"] or effects["deliver"] or not effects["charge"]
    agrees = effects["refund"] == 0 if state == "COMPLETED" else effects["refund"] == effects["charge"]
    told = f"{done}; cancel said {answer}"
    return told if ends_as_told and served and agrees else f"WRONG {told}"


if __name__ == "__main__":
    sys.exit(main())
