"""Workers of this release at the tables of the next: the tables are migrated first, and workers follow one by one."""

from __future__ import annotations

import pytest

from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.workflows import approval, approved, napping, sequence
from tests.store.next_release import NAME, migrated

pytestmark = [pytest.mark.prefork, pytest.mark.django_db(transaction=True)]


def test_a_worker_goes_on_while_the_tables_are_migrated_and_one_started_then_says_so(start_worker):
    worker = start_worker()
    waiting, sleeping = approval.start("waiting"), napping.start("sleeping", 2)
    eventually(lambda: effects("waiting") and effects("sleeping"), "both under way")
    with migrated():
        approved.send(waiting, "me")
        assert waiting.result(timeout=60) == "approved by me"
        assert sleeping.result(timeout=60) == "after"
        assert sequence.start("beside", 3).result(timeout=60) == ["step 0", "step 1", "step 2"]
        later = start_worker(arguments=["-n", "later@%h"])
        assert worker.stop() == 0
        assert sequence.start("later", 3).result(timeout=60) == ["step 0", "step 1", "step 2"]
        assert f"are of a newer release than this worker ({NAME})" in later.text()
        assert later.stop() == 0
    assert "was interrupted" not in worker.text() + later.text()
