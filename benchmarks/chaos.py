"""Many runs of the chaos suite, one line each: on each pair of database and broker, so many seeds.

    python benchmarks/chaos.py [--pair mariadb+redis] [--first 1] [--seeds 10] [--duration 120] [--output FILE]

Lines are added to the file as they come. Exits 1 if a run did; then what it printed and its folder are left to read.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAIRS = ("postgres+redis", "postgres+rabbitmq", "mariadb+redis", "sqlite+filesystem")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", action="append", choices=PAIRS, help="instead of all of them; may be repeated")
    parser.add_argument("--first", type=int, help="the first seed; drawn if there is none")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--duration", type=float, default=120)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    first = chosen.first or random.SystemRandom().randrange(1_000_000)
    failed = False
    for seed in range(first, first + chosen.seeds):
        for pair in chosen.pair or PAIRS:
            failed |= not run(pair, seed, chosen.duration, chosen.output)
    return 1 if failed else 0


def run(pair: str, seed: int, duration: float, output: Path | None) -> bool:
    command = [sys.executable, "-m", "tests.chaos", "--pair", pair, "--seed", str(seed), "--duration", str(duration)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    printed = done.stdout.splitlines()
    verdict = printed[-1] if printed and printed[-1].startswith("chaos: ") else f"ended with {done.returncode}"
    load = f"load {os.getloadavg()[0]:.0f}"
    line = f"{pair:<18} seed {seed:<7} {duration:4g} s, {load:<8} {verdict}{'' if done.returncode == 0 else '  FAILED'}"
    print(line, flush=True)
    if output is not None:
        with output.open("a") as file:
            file.write(line + "\n")
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
