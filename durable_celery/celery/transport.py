"""The ``Transport`` on Celery: messages as hints, published in bounded time or not at all.

Rules of this file:
- Nothing is raised. What was not published stands in the database, and the tick sends it.
- Messages go through ``app.send_task``, so that routes, signals and a project's own Celery class hold. Every option is
  given: Celery 5.4 ignores the task's own in ``send_task``, 5.7 does not.
- A message carries ids in its headers, and no arguments.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from kombu.exceptions import OperationalError

from durable_celery import faults, runtime
from durable_celery.celery import canvas, eager, existing_task
from durable_celery.celery.current_app import current_app
from durable_celery.celery.producers import Producers
from durable_celery.celery.quiet import Sparing
from durable_celery.celery.sockets import within
from durable_celery.conf import Settings
from durable_celery.ports import Dispatch, TaskCall, TaskEnd, Transport, Wake
from durable_celery.registry import registry

ADVANCE = "durable_celery.advance"
RUN_TASK = "durable_celery.run_task"
HEADER = "durable"
SOON = 5.0  # seconds; what is due later waits in the database, not in the broker
SILENCE = 3.0  # seconds in which a broker that failed is left alone
KIND = "x-queue-type"  # the argument of a queue by which RabbitMQ knows its kind
NET = 60.0  # seconds beyond an attempt's own limit until the pool's hard limit, the last net
ENOUGH = 0.75  # share of PUBLISH_TIMEOUT that must be left for a second try, on a new connection

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to publish."""

    task: str
    ids: dict[str, Any]
    queue: str | None
    priority: int | None = None
    countdown: float | None = None
    limit: float | None  # seconds until the pool kills whoever still holds it
    shadow: str | None = None  # the name people see
    route: str | None = None  # the name it is routed by
    options: Mapping[str, Any] = field(default_factory=dict)  # an existing task's own, of its class

    @property
    def point(self) -> str:
        """The fault point at which it is sent."""
        return "message.turn" if self.task == ADVANCE else "message.step"


class CeleryTransport:
    """Publishes for one process; made by ``AppConfig.ready()``, which neither connects nor looks for an app."""

    def __init__(self, settings: Settings, app: Callable[[], Any] = current_app) -> None:
        self._settings = settings
        self._timeout = settings.publish_timeout.total_seconds()
        self._producers = Producers(self._timeout / 2)
        self._silent_until = 0.0
        self._complain = Sparing(logger)
        self._app = app

    def dispatch(self, dispatches: Sequence[Dispatch], now: datetime) -> int:
        """Publish step messages; returns how many went out. What is due later than ``SOON`` does not go."""
        if self._is_eager():
            return len(dispatches) * self._run_at_once(lambda inline: inline.dispatch(dispatches, now))
        soon = self._soon()
        return self._publish([self._step_message(one, now) for one in dispatches if _wait_of(one, now) <= soon])

    def advance(self, instance_id: UUID, queue: str = "", *, delay: float = 0) -> bool:
        """Publish a hint that this instance has something to do; True if it went out."""
        return self.advance_all([Wake(instance_id=instance_id, queue=queue, delay=delay)]) == 1

    def advance_all(self, wakes: Sequence[Wake]) -> int:
        """The same for many; returns how many went out. What is due later than ``SOON`` does not go."""
        if not wakes:
            return 0
        if self._is_eager():
            return sum(self._run_at_once(partial(_advance, wake)) for wake in wakes)
        soon = self._soon()
        return self._publish([self._turn_message(one) for one in wakes if one.delay <= 0 or one.delay <= soon])

    def queue_of(self, queue: str = "", step: str = "") -> str:
        """The queue such messages go to; "" where a router of the project decides, and refuses to be asked."""
        known = registry.steps.get(step)
        name = queue or (self._settings.queue if not step else known.options.queue if known else "")
        if name:
            return name
        try:
            routed = self._app().amqp.router.route({}, step or ADVANCE).get("queue")
        except Exception:  # a router may want to see the message
            return ""
        return str(getattr(routed, "name", routed) or "")

    def task(self, name: str) -> Any:
        """The Celery task of that name on the current app."""
        return self._app().tasks[name]

    def adapt(self, yielded: Any) -> Any:
        """The command a signature of a step, an existing task or a canvas stands for; None for anything else."""
        return canvas.command_of(self._app(), yielded) if canvas.is_canvas(yielded) else None

    def plain(self, yielded: Any) -> Any:
        """A signature as plain data, checked; None for anything else."""
        if not canvas.is_canvas(yielded):
            return None
        canvas.plan_of(self._app(), yielded)
        return canvas.plain(yielded)

    def run_task(self, call: TaskCall) -> TaskEnd:
        """Run an attempt of an existing task."""
        return existing_task.run(self._app(), call)

    # -- without a broker

    def _is_eager(self) -> bool:
        try:
            return bool(self._app().conf.task_always_eager)
        except Exception:
            return False  # of an app that cannot be made nothing is known; publishing says what is wrong with it

    def _run_at_once(self, publish: Callable[[Transport], object]) -> bool:
        try:
            eager.run(self, publish)
        except Exception:
            logger.exception("task_always_eager: running an instance at once was interrupted; its rows stand")
            return False
        return True

    # -- making messages

    def _turn_message(self, one: Wake) -> Message:
        return Message(
            task=ADVANCE,
            ids={"instance": str(one.instance_id)},
            queue=one.queue or self._settings.queue,
            countdown=one.delay if one.delay > 0 else None,
            limit=self._engine_time(),
        )

    def _step_message(self, one: Dispatch, now: datetime) -> Message:
        if one.task:
            return self._task_message(one, now)
        step = registry.steps.get(one.name)
        wait = _wait_of(one, now)
        return Message(
            task=one.name,
            ids={"step": one.step_id, "after": [one.close_after, one.look_after]},
            queue=one.queue or (step.options.queue if step else None),
            priority=one.priority if one.priority is not None or step is None else step.options.priority,
            countdown=wait if wait > 0 else None,
            limit=(one.close_after or self._settings.step_timeout.total_seconds()) + self._engine_time(),
        )

    def _task_message(self, one: Dispatch, now: datetime) -> Message:
        """An existing task: our message, under its name, and where a message of its own would go."""
        task = self._app().tasks.get(one.task)
        own = {} if task is None else {n: v for n, v in task._get_exec_options().items() if v is not None}
        queue = one.queue or own.get("queue")
        wait = _wait_of(one, now)
        return Message(
            task=RUN_TASK,
            ids={"step": one.step_id, "after": [one.close_after, one.look_after], "task": one.name},
            queue=queue,
            priority=one.priority,
            countdown=wait if wait > 0 else None,
            limit=None if one.close_after is None else one.close_after + self._engine_time(),
            shadow=one.name,
            route=one.task,
            options={} if queue else {name: own[name] for name in ("exchange", "routing_key") if name in own},
        )

    def _soon(self) -> float:
        """How many seconds a message may wait on its way.

        None where a worker consumes quorum queues: they know no prefetch for a whole connection, so Celery cannot raise
        it by what only waits, and a few such messages would keep it from all others.
        """
        try:
            queues = self._app().amqp.queues.values()
            return 0.0 if any((queue.queue_arguments or {}).get(KIND) == "quorum" for queue in queues) else SOON
        except Exception:
            return SOON  # of an app that cannot be made nothing is known; publishing says what is wrong with it

    def _engine_time(self) -> float:
        return self._settings.turn_timeout.total_seconds() + self._settings.inline_seconds.total_seconds() + NET

    # -- sending them

    def _publish(self, messages: Sequence[Message]) -> int:
        """Send until done, or the time is up, or the broker fails; remember a failure for a while."""
        began = time.monotonic()
        if not messages or began < self._silent_until:
            return 0
        done: list[bool] = []  # for each message dealt with, whether it went out
        try:
            app = self._app()
            with within(self._timeout):
                self._send_all(app, messages, done, began)
        except Exception as error:
            self._note_failure(error, len(messages) - len(done))
        else:
            self._complain.fine("the broker takes messages again.")
        return sum(done)

    def _send_all(self, app: Any, messages: Sequence[Message], done: list[bool], began: float) -> None:
        """Over a connection that was kept, and if that has gone stale, once more over a new one."""
        stale = False
        try:
            with self._producers.lend(app) as lent:
                stale = not lent.fresh
                self._send_some(app, lent.producer, messages, done, began)
        except Exception:
            if not stale or self._left(began) < ENOUGH * self._timeout:
                raise
            with self._producers.lend(app, fresh=True) as lent:
                self._send_some(app, lent.producer, messages[len(done) :], done, began)

    def _send_some(self, app: Any, producer: Any, messages: Sequence[Message], done: list[bool], began: float) -> None:
        broken = _errors_of(producer)
        for message in messages:
            if done and self._left(began) <= 0:
                logger.debug("out of time after %d messages", len(done))
                return
            try:
                done.append(faults.post(message.point, message, partial(self._send, app, producer)))
            except broken:
                raise
            except Exception:
                # Not the broker's: a route to a queue that is not there, a router that raises. The others go on.
                logger.exception("a message for %s could not be made; its row is tried again by the tick", message.task)
                done.append(False)

    def _left(self, began: float) -> float:
        return self._timeout - (time.monotonic() - began)

    def _send(self, app: Any, producer: Any, message: Message, later: float = 0.0) -> None:
        options = dict(message.options)
        countdown = (message.countdown or 0.0) + later
        if message.queue:
            options["queue"] = message.queue
        if message.priority is not None:
            options["priority"] = message.priority
        app.send_task(
            message.task,
            (),
            {},
            countdown=countdown or None,
            headers={HEADER: {**message.ids, "sent": runtime.current().clock.guess().timestamp() + countdown}},
            producer=producer,
            retry=False,
            timeout=self._timeout / 2,
            confirm_timeout=self._timeout / 2,
            serializer=_serializer(app),
            ignore_result=True,
            result_cls=_NoResult,
            add_to_parent=False,
            expires=None,
            time_limit=message.limit,
            soft_time_limit=None if message.limit is None else message.limit - 1,
            shadow=message.shadow,
            route_name=message.route,
            **options,
        )

    def _note_failure(self, error: Exception, unsent: int) -> None:
        self._silent_until = time.monotonic() + SILENCE
        self._complain.warning(
            "the broker takes no messages (%s: %s); %d stay in the database, and the tick sends them when it does",
            type(error).__name__,
            error,
            unsent,
        )


class _NoResult:
    """In place of an AsyncResult, which would ask for a result backend."""

    ignored = True

    def __init__(self, task_id: str) -> None:
        self.id = task_id


def _advance(wake: Wake, inline: Transport) -> None:
    inline.advance(wake.instance_id, wake.queue)


def _wait_of(one: Dispatch, now: datetime) -> float:
    return 0.0 if one.due_at is None else (one.due_at - now).total_seconds()


def _serializer(app: Any) -> str:
    """JSON where the app's workers take it: a message they refuse to read would be lost."""
    accepted = set(app.conf.accept_content or ())
    return "json" if accepted & {"json", "application/json"} else app.conf.task_serializer


def _errors_of(producer: Any) -> tuple[type[BaseException], ...]:
    """The broker's errors. kombu counts KeyError among them, which is also what a route to an unknown queue ends in."""
    connection = producer.connection
    errors = (OperationalError, OSError, *connection.connection_errors, *connection.channel_errors)
    return tuple(error for error in errors if not issubclass(error, LookupError))
