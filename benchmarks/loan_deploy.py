"""An edit rolled out under open instances: loans wait for an approval while they get a compliance check.

    python benchmarks/loan_deploy.py [--instances 10000] [--database postgres] [--broker redis] [--output FILE]

Two checkouts of the example project are made: one as it is, and one before the edit, without ``patched(...)``, its
check and the module that holds it. All instances are started one by one by ``start`` and wait. Then approvals are sent,
never far ahead of the payouts:

- up to 20 % of them, only workers of the old checkout run
- up to 80 %, workers of both checkouts run on one queue
- the rest, only workers of the new checkout

Prints how many went with the new step and how many without it by rule (they had passed the place before), how often an
instance was BLOCKED at any time, what was lost, and the time. Exits 1 if anything is not as it must be. Services are
found or started as for the tests (tests/project/surroundings.py).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from loan_site import Worker, check_out, site

PATCH = "2026-11-compliance-check"
AHEAD = 0.03  # share of the approvals that may be sent and not yet paid out
SWITCH = (0.2, 0.8)  # shares of the approvals: the new workers come, the old ones go


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--database", default="postgres", choices=("postgres", "mariadb", "sqlite"))
    parser.add_argument("--broker", default="redis", choices=("redis", "rabbitmq", "filesystem"))
    parser.add_argument("--concurrency", type=int, default=2, help="processes of each worker")
    parser.add_argument("--deadline", type=float, default=7200, help="seconds after which it has failed")
    parser.add_argument("--output", type=Path, help="write what is printed to this file, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="loan-deploy-") as folder, site(options, Path(folder)):
        deploy = Deploy(options, Path(folder))
        try:
            deploy.run()
        finally:
            deploy.stop()
        text, good = deploy.report()
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    return 0 if good else 1


@dataclass(kw_only=True)
class Seen:
    """What happened, and when: seconds since the beginning."""

    started: float = 0.0
    waiting: float = 0.0
    came: float = 0.0
    went: float = 0.0
    ended: float = 0.0
    done_before: set[Any] = field(default_factory=set)  # ended when the new workers came
    sent_after: set[Any] = field(default_factory=set)  # approved when the old ones had gone
    blocked: set[Any] = field(default_factory=set)  # ever found so


class Deploy:
    """From the first start to the last payout."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.after, self.before, self.edit = check_out(folder)
        self.workers: list[Worker] = []
        self.seen = Seen()
        self.began = time.monotonic()
        sys.path.insert(0, str(self.before))
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)

    def run(self) -> None:
        old = self.start_worker("old", self.before)
        handles = self.start_instances()
        self.seen.started = self.now()
        self.until(lambda: self.count(state="WAITING", status_text="waiting for an approval") == len(handles))
        self.seen.waiting = self.now()
        comes, goes = (int(len(handles) * share) for share in SWITCH)
        self.approve(handles[:comes])
        self.until(lambda: self.open_ahead(comes) == 0)
        self.seen.done_before = self.ids(state="COMPLETED")
        self.start_worker("new", self.after)
        self.seen.came = self.now()
        self.approve(handles[comes:goes], sent=comes)
        old.stop()
        self.seen.went = self.now()
        self.approve(handles[goes:], sent=goes)
        self.seen.sent_after = {handle.id for handle in handles[goes:]}
        self.until(lambda: self.count(state="COMPLETED") == len(handles))
        self.seen.ended = self.now()

    def start_worker(self, name: str, checkout: Path) -> Worker:
        worker = Worker(name, checkout, self.folder / f"{name}.log", self.options.concurrency)
        self.workers.append(worker)
        self.until(worker.ready)
        return worker

    def start_instances(self) -> list[Any]:
        from loans.models import Application
        from loans.workflows import decide

        made = [
            Application(applicant=f"applicant {n}", amount=1000 + n % 9000, income=20_000)
            for n in range(self.options.instances)
        ]
        Application.objects.bulk_create(made, batch_size=1000)
        return [decide.start(pk) for pk in Application.objects.order_by("pk").values_list("pk", flat=True)]

    def approve(self, handles: list[Any], sent: int = 0) -> None:
        """Send approvals, never far ahead of the payouts."""
        from loans.workflows import Approval, approval

        ahead = max(4, int(self.options.instances * AHEAD))
        for n in range(0, len(handles), ahead // 4):
            for handle in handles[n : n + ahead // 4]:
                approval.send(handle, Approval(by="ana"))
            self.until(lambda up_to=sent + n + ahead // 4: self.open_ahead(up_to) < ahead)

    def open_ahead(self, sent: int) -> int:
        """How many of those approved have not ended."""
        return min(sent, self.options.instances) - self.count(state="COMPLETED")

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.now() > self.options.deadline:
                raise SystemExit(f"not done after {self.options.deadline:g} s: {self.states()}")
            self.seen.blocked |= self.ids(state="BLOCKED")
            time.sleep(0.1)

    def now(self) -> float:
        return time.monotonic() - self.began

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop(20)

    # -- what there is ---------------------------------------------------------------------------------------------

    def count(self, **state: Any) -> int:
        from django_app.models import WorkflowInstance

        return int(WorkflowInstance.objects.filter(**state).count())

    def ids(self, **state: Any) -> set[str]:
        from django_app.models import WorkflowInstance

        return {str(pk) for pk in WorkflowInstance.objects.filter(**state).values_list("pk", flat=True)}

    def states(self) -> dict[str, int]:
        from django.db.models import Count

        from django_app.models import WorkflowInstance

        return dict(WorkflowInstance.objects.values_list("state").annotate(Count("id")))

    def said(self, text: str) -> int:
        return sum(worker.text().count(text) for worker in self.workers)

    def lines_with(self, text: str) -> list[str]:
        return [
            f"{worker.name}: {line}" for worker in self.workers for line in worker.text().splitlines() if text in line
        ]

    # -- what is printed -------------------------------------------------------------------------------------------

    def report(self) -> tuple[str, bool]:
        from django_app.models import Marker, StepResult
        from loans.models import Application, ComplianceReport, Payout

        def run_ids(rows: Any) -> set[str]:
            return {str(pk) for pk in rows.values_list("instance_id", flat=True)}

        seen, instances = self.seen, self.options.instances
        ended = self.ids(state="COMPLETED")
        marked = run_ids(Marker.objects.filter(key=f"patch:{PATCH}"))
        checked = run_ids(StepResult.objects.filter(name="loans.compliance.check_compliance", state="SUCCEEDED"))
        paid = run_ids(StepResult.objects.filter(name="loans.steps.pay_out", state="SUCCEEDED"))
        blocked = max(len(seen.blocked), self.said(" is BLOCKED"))
        rules = {
            "every run with the new step recorded the patch, and no other did": marked == checked,
            "all that had ended before the new workers came went without": not seen.done_before & checked,
            "all approved after the old workers had gone went with it": seen.sent_after <= checked,
            "every run paid out, once": paid == ended and Payout.objects.count() == instances,
            "every check is of a run with the new step": ComplianceReport.objects.count() == len(checked),
            "every application is PAID": Application.objects.filter(state="PAID").count() == instances,
            "nothing was ever BLOCKED": blocked == 0,
            "nothing was lost": len(ended) == instances,
        }
        lines = [
            f"loan_deploy.py, {datetime.now(timezone.utc):%Y-%m-%d}, {self.options.database} and {self.options.broker}",
            f"a worker of {self.options.concurrency} processes for each checkout, {os.cpu_count()} cores",
            "",
            self.edit,
            "",
            f"{'instances started':<44}{instances:>8}",
            f"{'with the new step':<44}{len(checked):>8}",
            f"{'without it by rule':<44}{len(ended - checked):>8}",
            f"{'left to the other workers, times':<44}{self.said(' is left to '):>8}",
            f"{'blocked, ever':<44}{blocked:>8}",
            f"{'lost':<44}{instances - len(ended):>8}",
            "",
            f"{'all started after':<44}{seen.started:>8.1f} s",
            f"{'all waiting after':<44}{seen.waiting:>8.1f} s",
            f"{'old and new workers side by side for':<44}{seen.went - seen.came:>8.1f} s",
            f"{'all ended after':<44}{seen.ended:>8.1f} s",
            "",
            *(f"{'holds' if holds else 'BROKEN':<8}{rule}" for rule, holds in rules.items()),
            *self.lines_with(" is BLOCKED")[:5],
        ]
        return "\n".join(lines), all(rules.values())


if __name__ == "__main__":
    sys.exit(main())
