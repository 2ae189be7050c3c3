"""The demo from the first line to the last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db.models import Count

from project.settings import DATA_DIR

from .audit import FINAL, Books, audit, read_books
from .chaos import Chaos
from .orders import read_orders_file
from .processes import BEAT, WORKER, Process
from .report import Progress, ProgressBar, audit_lines, last_line, outcome_table, timeline
from .stage import set_stage
from .traffic import Traffic


@dataclass(frozen=True)
class Plan:
    """``deadline`` counts from the first order; what is open then is stuck."""

    orders: int
    per_second: float
    time_scale: float
    deadline: timedelta


def run(plan: Plan) -> int:
    """Play the day, print the outcome; return the exit status: 1 if a figure of the last line is not right."""
    content = read_orders_file()
    orders = content.orders[: plan.orders]
    set_stage()
    print(f"{len(orders)} orders, {settings.DATABASES['default']['ENGINE'].rpartition('.')[2]}, ", end="")
    print(f"{settings.CELERY_BROKER_URL.partition('://')[0]}; 30 minutes pass in {1800 / plan.time_scale:.0f} s")
    with processes() as (worker, beat):
        traffic = Traffic(orders, plan.per_second, plan.time_scale)
        chaos = Chaos(worker, beat, running_attempts)
        play(plan, traffic, chaos, (worker, beat))
    books = read_books(
        orders_by_token=traffic.answers.order_ids,
        tokens=tuple(order.checkout_token for order in orders),
        paid_in_time=traffic.answers.paid_in_time,
        stock_before={product.sku: product.stock for product in content.products},
    )
    return conclude(books, traffic, chaos)


@contextmanager
def processes() -> Iterator[tuple[Process, Process]]:
    """A started worker and Beat; both are gone at the end, however it comes."""
    logs = DATA_DIR / "logs"
    worker = Process("worker", WORKER, logs / "worker.log")
    beat = Process("Beat", BEAT, logs / "beat.log")
    try:
        worker.start()
        beat.start()
        yield worker, beat
    finally:
        beat.stop()
        worker.stop()


def play(plan: Plan, traffic: Traffic, chaos: Chaos, processes: tuple[Process, ...]) -> None:
    """Let traffic come and processes die until every order is closed and every kill made, or the deadline is over."""
    started, bar = time.monotonic(), ProgressBar()
    next_look = 0.0
    progress = Progress(0, 0, 0, plan.orders, chaos.kills, 0.0)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="traffic") as pool:
        sending = pool.submit(traffic.run)
        try:
            while time.monotonic() - started < plan.deadline.total_seconds():
                now = time.monotonic()
                if now >= next_look:
                    progress = read_progress(plan, chaos, now - started)
                    bar.show(progress)
                    check_alive(processes)
                    next_look = now + 0.5
                if all_done(plan, progress, sending):
                    break
                waits_for_its_moment = chaos.go_on(now, progress.closed / max(plan.orders, 1))
                time.sleep(0.01 if waits_for_its_moment else 0.1)
        finally:
            traffic.stop()
            bar.end(progress)
    sending.result()


def all_done(plan: Plan, progress: Progress, sending: Future[None]) -> bool:
    return sending.done() and progress.closed >= plan.orders


def read_progress(plan: Plan, chaos: Chaos, elapsed: float) -> Progress:
    from django_app.models import WorkflowInstance

    by_state = WorkflowInstance.objects.filter(name="shop.fulfil_order").values_list("state").annotate(Count("pk"))
    states: Counter[str] = Counter({str(state): count for state, count in by_state})
    return Progress(
        placed=states.total(),
        closed=sum(states[state] for state in FINAL),
        waiting=states["WAITING"],
        orders=plan.orders,
        kills=chaos.kills,
        elapsed=elapsed,
    )


def running_attempts() -> set[Hashable]:
    """Step and attempt of every step of the shop that the journal shows as running."""
    from django_app.models import StepResult

    running = StepResult.objects.filter(state="RUNNING", name__startswith="shop.steps.")
    return set(running.values_list("pk", "attempt"))


def check_alive(processes: tuple[Process, ...]) -> None:
    for process in processes:
        status = process.died()
        if status is not None:
            tail = "".join(process.log.read_text(errors="replace").splitlines(keepends=True)[-30:])
            raise RuntimeError(f"{process.name} ended by itself with status {status}; its last lines:\n{tail}")


def conclude(books: Books, traffic: Traffic, chaos: Chaos) -> int:
    verdict, answers = audit(books), traffic.answers
    webhook = ", ".join(f"{count} {answer}" for answer, count in sorted(answers.webhook.items()))
    kills = ", ".join(f"{target} {count}" for target, count in sorted(chaos.kills.items()))
    print(f"\nOutcomes\n{outcome_table(books.orders)}")
    print(f"\nPayment messages: {webhook}. Killed in the middle: {kills}.")
    print(f"\n{most_eventful_timeline()}")
    print(f"\nAudit\n{audit_lines(verdict)}")
    for text in answers.unexpected[:10]:
        print(f"  unexpected: {text}")
    if not chaos.finished:
        print("  unexpected: the day was over before everything planned was killed and started again")
    print(last_line(verdict, chaos.kills["worker"]))
    return 0 if verdict.clean and chaos.finished and not answers.unexpected else 1


def most_eventful_timeline() -> str:
    """The history of the shipped order whose steps took the most attempts."""
    from django.db.models import Sum

    from django_app.models import StepResult
    from shop.workflows import fulfil_order

    steps = StepResult.objects.filter(instance__name="shop.fulfil_order", instance__state="COMPLETED")
    busiest = steps.values("instance__key").annotate(attempts=Sum("attempt")).order_by("-attempts", "instance__key")
    key = busiest.values_list("instance__key", flat=True).first()
    if key is None:
        return "No order was shipped."
    handle = fulfil_order.get(key=key)
    return timeline(f"{key} {handle.status}", handle.history())
