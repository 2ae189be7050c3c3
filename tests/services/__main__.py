"""Starts the services in the background, so that several test runs share them, and stops them."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.services import SERVICES, Service, variable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.services", description=__doc__)
    parser.add_argument("verb", choices=["start", "stop"])
    parser.add_argument("--env", type=Path, required=True, help="the file of `export TEST_..._URL=...` lines")
    parser.add_argument("--only", nargs="*", choices=sorted(SERVICES), default=list(SERVICES), help="not all four")
    chosen = parser.parse_args()
    state = chosen.env.with_name(chosen.env.name + ".json")
    return start(chosen.env, state, chosen.only) if chosen.verb == "start" else stop(chosen.env, state)


def start(env: Path, state: Path, names: list[str]) -> int:
    """All at once: RabbitMQ alone takes longer than the others together."""
    with ThreadPoolExecutor(len(names)) as pool:
        found = dict(zip(names, pool.map(lambda name: SERVICES[name].find(), names), strict=True))
    services = [service for service in found.values() if service is not None]
    env.write_text("".join(f"export {variable(service.name)}={service.url}\n" for service in services))
    state.write_text(json.dumps([asdict(service) for service in services]))
    for name, service in found.items():
        print(f"{name:<10}{service.url} ({service.source})" if service else f"{name:<10}not found")
    return 0


def stop(env: Path, state: Path) -> int:
    if not state.exists():
        print(f"{state} is missing: nothing was started with --env {env}.", file=sys.stderr)
        return 2
    services = [Service(**{**row, "pids": tuple(row["pids"])}) for row in json.loads(state.read_text())]
    with ThreadPoolExecutor(len(services) or 1) as pool:
        list(pool.map(Service.stop, services))
    state.unlink()
    env.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
