"""What goes to the broker, for whom, and by which queue."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import timedelta
from uuid import uuid4

import pytest
from celery import signals
from kombu import Queue
from kombu.transport import memory

from durable_celery import faults, step
from durable_celery.celery import transport as transports
from durable_celery.celery.transport import CeleryTransport
from durable_celery.conf import Settings
from tests.celery.sending import NOW, messages_in, one, transport_on


@step(name="tests.celery.priced", queue="pricing", priority=4)
def priced(order_id):
    return order_id


def test_a_step_message_carries_ids_in_its_headers_and_no_arguments(app, transport):
    assert transport.dispatch([one(look_after=5.0)], NOW) == 1
    (message,) = messages_in(app)
    assert message.headers["task"] == "shop.charge"
    sent = message.headers["durable"].pop("sent")
    assert abs(time.time() - sent) < 60
    assert message.headers["durable"] == {"step": 42, "after": [30.0, 5.0]}
    args, kwargs, _ = message.payload
    assert (args, kwargs) == ([], {})
    assert message.headers["ignore_result"] is True
    assert message.headers["eta"] is None
    assert len(json.dumps(message.headers)) + len(message.body) < 2_000


def test_a_message_has_time_limits_of_its_own_beyond_its_attempts(app, transport):
    transport.dispatch([one(close_after=30.0)], NOW)
    transport.advance(uuid4())
    for message in messages_in(app):
        hard, soft = message.headers["timelimit"]
        assert 60 < soft < hard
        assert hard >= (90 if message.headers["task"] == "shop.charge" else 60)


def test_an_advance_names_its_instance(app, transport):
    instance_id = uuid4()
    assert transport.advance(instance_id)
    (message,) = messages_in(app)
    assert message.headers["task"] == "durable_celery.advance"
    assert message.headers["durable"].pop("sent") > 0
    assert message.headers["durable"] == {"instance": str(instance_id)}


def test_on_quorum_queues_nothing_waits_on_its_way(new_app):
    """A worker cannot take other messages for those that only wait: Celery knows no prefetch for all of them there."""
    app = new_app()
    app.conf.task_queues = [Queue(app.conf.task_default_queue, queue_arguments={"x-queue-type": "quorum"})]
    transport = transport_on(app)
    late = one(due_at=NOW + timedelta(seconds=0.2))
    assert transport.dispatch([late, one()], NOW) == 1
    assert not transport.advance(uuid4(), delay=0.2)
    assert transport.advance(uuid4())
    assert [message.headers["eta"] for message in messages_in(app)] == [None, None]
    assert transport_on(new_app()).dispatch([late], NOW) == 1


def test_the_projects_routes_hold(new_app):
    app = new_app(task_routes={"shop.*": {"queue": "shop"}, "durable_celery.advance": {"queue": "turns"}})
    transport = transport_on(app)
    transport.dispatch([one()], NOW)
    transport.advance(uuid4())
    assert [message.headers["task"] for message in messages_in(app, "shop")] == ["shop.charge"]
    assert [message.headers["task"] for message in messages_in(app, "turns")] == ["durable_celery.advance"]


def test_the_queue_of_turns_is_known_where_it_can_be(new_app):
    routed = transport_on(new_app(task_routes={"durable_celery.advance": {"queue": "turns"}}))
    assert (routed.queue_of(), routed.queue_of("vip")) == ("turns", "vip")
    assert transport_on(new_app(task_default_queue="all")).queue_of() == "all"
    assert transport_on(new_app(), queue="ours").queue_of() == "ours"

    def asks(name, args, kwargs, options, task=None, **kw):
        raise KeyError(name)

    assert transport_on(new_app(task_routes=[asks])).queue_of() == ""


def test_the_queue_of_a_step_is_known_where_it_can_be(new_app):
    routed = transport_on(new_app(task_routes={"shop.charge": {"queue": "shop"}}, task_default_queue="all"))
    assert routed.queue_of("", "shop.charge") == "shop"
    assert routed.queue_of("", priced.name) == "pricing"
    assert routed.queue_of("vip", priced.name) == "vip"
    assert routed.queue_of("", "unknown.here") == "all"


def test_the_queue_and_priority_of_the_row_come_before_those_of_the_step(app, transport):
    transport.dispatch([one(name=priced.name), one(name=priced.name, queue="vip", priority=0)], NOW)
    (ordinary,) = messages_in(app, "pricing")
    (special,) = messages_in(app, "vip")
    assert ordinary.properties["priority"] == 4
    assert special.properties["priority"] == 0


def test_turns_go_to_the_queue_of_the_settings_unless_the_instance_has_one(app):
    transport = transport_on(app, queue="turns")
    transport.advance(uuid4())
    transport.advance(uuid4(), "own")
    assert len(messages_in(app, "turns")) == 1
    assert len(messages_in(app, "own")) == 1


def test_a_short_wait_goes_along_and_a_long_one_stays_in_the_database(app, transport):
    soon, late = NOW + timedelta(seconds=3), NOW + timedelta(seconds=30)
    assert transport.dispatch([one(due_at=soon), one(due_at=late), one(due_at=NOW - timedelta(seconds=9))], NOW) == 2
    etas = [message.headers["eta"] for message in messages_in(app)]
    assert sorted(eta is None for eta in etas) == [False, True]
    assert transport.advance(uuid4(), delay=30) is False
    assert messages_in(app) == []


def test_json_is_used_even_where_the_project_pickles_but_only_if_its_workers_read_it(new_app):
    both = new_app(task_serializer="pickle", accept_content=["pickle", "json"])
    transport_on(both).dispatch([one()], NOW)
    assert messages_in(both)[0].content_type == "application/json"
    pickling = new_app(task_serializer="yaml", accept_content=["yaml"])
    assert transports._serializer(pickling) == "yaml"


def test_receivers_of_before_task_publish_see_each_message(app, transport):
    seen = []

    def receiver(sender=None, headers=None, **_):
        seen.append((sender, headers["durable"]["step"]))

    signals.before_task_publish.connect(receiver, weak=False)
    try:
        transport.dispatch([one(step_id=1), one(step_id=2)], NOW)
    finally:
        signals.before_task_publish.disconnect(receiver)
    assert seen == [("shop.charge", 1), ("shop.charge", 2)]


def test_a_router_that_raises_for_one_step_does_not_stop_the_others(new_app, caplog):
    def router(name, args, kwargs, options, task=None, **_):
        if name == "shop.bad":
            raise RuntimeError("the router is broken")

    app = new_app(task_routes=(router,))
    transport = transport_on(app)
    assert transport.dispatch([one(name="shop.bad"), one(name="shop.good")], NOW) == 1
    assert [message.headers["task"] for message in messages_in(app)] == ["shop.good"]
    assert "shop.bad" in caplog.text
    assert "the router is broken" in caplog.text
    assert transport.advance(uuid4()), "the broker is not to blame"


def test_a_queue_the_project_does_not_have_stops_no_other_message(new_app, caplog, monkeypatch):
    errors = (*memory.Transport.channel_errors, KeyError)  # as Redis's are
    monkeypatch.setattr(memory.Transport, "channel_errors", errors)
    app = new_app(task_create_missing_queues=False, task_queues=[Queue("known")], task_default_queue="known")
    transport = transport_on(app)
    unknown = [one(name="shop.bad", queue="unknown"), one(name="shop.good")]
    assert transport.dispatch(unknown, NOW) == 1
    assert [message.headers["task"] for message in messages_in(app)] == ["shop.good"]
    assert "Queue 'unknown' missing from task_queues" in caplog.text
    assert "the broker takes no messages" not in caplog.text
    assert transport.advance(uuid4()), "the broker is not to blame"


def test_an_app_that_cannot_be_had_raises_nothing():
    def none():
        raise RuntimeError("no app")

    assert CeleryTransport(Settings(), none).dispatch([one()], NOW) == 0


def test_under_task_always_eager_nothing_is_published_and_nothing_raised(new_app):
    """What it runs is shown in test_o47; here there is no database to run it on."""
    app = new_app(task_always_eager=True, broker="redis://127.0.0.1:1")
    assert transport_on(app).dispatch([one()], NOW) == 0
    assert not transport_on(app).advance(uuid4())


def test_nothing_to_publish_needs_no_broker(new_app):
    assert transport_on(new_app(broker="redis://127.0.0.1:1")).dispatch([], NOW) == 0


def test_producers_are_kept_for_the_next_time_and_not_taken_into_a_fork(app, transport):
    transport.dispatch([one()], NOW)
    (kept,) = transport._producers._idle_of(app)
    transport.dispatch([one()], NOW)
    assert list(transport._producers._idle_of(app)) == [kept]
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not transport._producers._idle_of(app) else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_threads_publish_at_the_same_time_each_on_a_producer_of_its_own(app, transport):
    start = threading.Barrier(8)

    def publish():
        start.wait(10)
        for _ in range(20):
            transport.dispatch([one()], NOW)

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(messages_in(app)) == 160


# -- what definitions ask ---------------------------------------------------------------------------------------------


def test_the_signature_of_a_step_is_the_step_and_what_is_no_signature_is_nothing(app, transport, monkeypatch):
    made = []

    def call(self, *args, **kwargs):
        made.append((self, args))
        return "command"

    monkeypatch.setattr(type(priced), "__call__", call)
    assert transport.adapt(app.signature(priced.name, args=(7,))) == "command"
    assert made[0][1] == (7,)
    assert transport.adapt(app.signature(priced.name, args=(7,)).set(queue="vip", priority=1)) == "command"
    assert (made[1][0].options.queue, made[1][0].options.priority) == ("vip", 1)
    assert transport.adapt(object()) is None


@pytest.mark.parametrize(
    ("kind", "out", "told"),
    [("drop", [], 0), ("lose", [], 1), ("unconfirmed", [42], 0), ("double", [42, 42], 1), ("delay=4", [42], 1)],
)
def test_a_fault_changes_what_goes_out(app, transport, kind, out, told):
    with faults.injected(f"message.step:{kind}"):
        assert transport.dispatch([one()], NOW) == told
    found = messages_in(app)
    assert [message.headers["durable"]["step"] for message in found] == out
    assert [message.headers["eta"] is not None for message in found] == [kind == "delay=4"] * len(out)


def test_a_fault_changes_the_order_of_what_goes_out(app, transport):
    with faults.injected("message.step:reorder"):
        assert transport.dispatch([one(), one(step_id=43)], NOW) == 2
    assert [message.headers["durable"]["step"] for message in messages_in(app)] == [43, 42]
