"""Remove instances that ended long ago, with everything that belongs to them."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django_app import looks
from django_app.verbs.console import Console, WrongUsage
from durable_celery import purging, runtime
from durable_celery.conf import LONGEST_RETENTION

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", metavar="AGE",
        help="what ended longer ago: 30d, 12h, 90m or seconds; without it DURABLE_CELERY['RETENTION']",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="count what would go, and remove nothing")
    parser.add_argument("--json", action="store_true", help="one JSON document: counts of rows")


def run(options: Any, console: Console) -> int:
    age = _age(options.older_than) if options.older_than is not None else runtime.settings().retention
    if age is None:
        raise WrongUsage(
            "DURABLE_CELERY['RETENTION'] keeps everything: it is None, or wrong (manage.py check tells); expected "
            "--older-than, as 90d"
        )
    report = purging.purge(older_than=age, dry_run=options.dry_run)
    if options.json:
        console.document({**asdict(report), "dry_run": options.dry_run})
        return 1 if report.busy else 0
    console.line(
        f"{report.instances} instances in {report.trees} trees that ended before {looks.moment(report.before)} "
        f"{'would be' if options.dry_run else 'were'} removed, with {report.steps} steps and {report.messages} messages"
    )
    if report.left:
        console.line(f"{report.left} trees stay: something in them is open or ended later")
    if report.busy:
        console.error("another purge is under way, and the rest is left to it")
    return 1 if report.busy else 0


def _age(text: str) -> timedelta:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text.strip())
    try:
        age = timedelta(**{UNITS[found[2] or "s"]: float(found[1])}) if found else None
    except OverflowError:
        age = None
    if age is None or age > LONGEST_RETENTION:
        raise WrongUsage(
            f"--older-than is {text!r}, expected an age as 30d, 12h, 90m or a number of seconds, of "
            f"{LONGEST_RETENTION.days}d at most"
        )
    return age
