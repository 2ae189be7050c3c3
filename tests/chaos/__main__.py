"""python -m tests.chaos --seed 7 --duration 120 [--pair postgres+redis]

Runs mixed workflows while workers, Beats, broker and database break, and judges what came of them. The services are
started for the run alone, unless DATABASE_URL and BROKER_URL name others: then only that is done to them which their
own protocol allows. The same seed starts, sends and breaks the same things at the same times; ``--plan`` prints them.
Exit status 0: nothing lost, stuck or doubled, and enough was run and broken to say so.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import time
from contextlib import ExitStack

from tests.chaos import ground, plan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="one is drawn if there is none")
    parser.add_argument("--duration", type=float, default=120, help="seconds in which things are started and break")
    parser.add_argument("--pair", choices=ground.PAIRS, default=ground.PAIRS[0])
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder of logs and books; that of a failure is kept anyway"
    )
    parser.add_argument("--plan", action="store_true", help="print what happens when, before it does")
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if chosen.seed is None else chosen.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with all that it has started
    with ExitStack() as stack:
        folder = ground.folder()
        found = ground.find(chosen.pair, os.environ, stack)
        made = plan.make(seed, chosen.duration, found.kinds)
        print(f"seed {seed}, {chosen.duration:g} s, {found.pair}, logs in {folder}", flush=True)
        if chosen.plan:
            print("\n".join(str(one) for one in (*made.starts, *made.acts, *made.faults)), flush=True)
        status = go(seed, chosen.duration, made, found)
    if status == 0 and not chosen.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return status


def go(seed: int, duration: float, made: plan.Plan, found: ground.Ground) -> int:
    from tests.chaos.running import run

    began = time.monotonic()
    report = run(seed, duration, made, found.database, found.broker, found.kinds)
    print(f"seed {seed}, {found.pair}, {time.monotonic() - began:.0f} s in all")
    for line in report.lines():
        print(line)
    return 0 if report.passes() else 1


if __name__ == "__main__":
    sys.exit(main())
