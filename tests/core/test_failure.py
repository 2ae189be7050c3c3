"""What is kept of an exception: always something, never the class itself."""

from __future__ import annotations

import builtins
import json
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from durable_celery import BadValue, errors
from durable_celery.core.failure import CAUSES, TEXT, TRACE, Cause, Failure, failure_of, lost, printable, timed_out
from durable_celery.errors import ChildFailed, NonRetryable, StepFailed, UpdateRejected, WorkflowError, WorkflowFailed


class Declined(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)


class Unreadable(dict[str, int]):
    def items(self) -> Any:
        raise LookupError("not now")


class Odd(Exception):
    """Attributes that JSON does not take stay behind."""

    def __init__(self) -> None:
        super().__init__("odd")
        self.number, self.text, self.nothing, self.flag = 1.5, "t", None, True
        self.items = [1, {"a": 2}]
        self.lock = threading.Lock()
        self.not_a_number = float("nan")
        self.nested = [object()]
        self.cyclic: list[Any] = []
        self.cyclic.append(self.cyclic)
        self.huge = "x" * (TEXT + 1)
        self._private = 1


def raised(error: BaseException) -> Failure:
    """The failure of an error that has been raised."""
    try:
        raise error
    except BaseException as caught:
        return failure_of(caught)


def test_type_bases_message_and_traceback_are_kept() -> None:
    failure = raised(Declined("no money", 51))

    assert failure.type == f"{__name__}.Declined"
    assert failure.types == (f"{__name__}.Declined", "Exception", "BaseException")
    assert failure.message == "no money"
    assert failure.attributes == {"code": 51}
    assert "raise error" in failure.traceback
    assert failure.traceback.rstrip().endswith("Declined: no money")


def test_o48_odd_errors_survive() -> None:
    assert raised(Declined("m", 3)).message == "m"
    assert raised(ValueError(threading.Lock())).message.startswith("<unlocked _thread.lock")
    assert raised(Mute()).message == "<Mute whose __str__ raised RuntimeError>"
    assert raised(Leaving()).message == "<Leaving whose __str__ raised SystemExit>"
    assert raised(SystemExit(3)).types == ("SystemExit", "BaseException")
    assert raised(KeyError("k")).message == "'k'"


def test_attributes_that_cannot_be_read_stay_behind() -> None:
    error = ValueError("v")
    vars(error).update(read=1, unread=Unreadable(a=1))
    assert raised(error).attributes == {"read": 1}


def test_o48_a_cyclic_cause_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert "first" in raised(first).traceback


if sys.version_info >= (3, 11):  # without exception groups there is nothing to keep, and nothing to skip

    def test_o48_an_exception_group_is_kept_as_one() -> None:
        group = vars(builtins)["ExceptionGroup"]("several", [ValueError("x"), KeyError("y")])
        failure = raised(group)

        assert failure.type == "ExceptionGroup"
        assert failure.message == "several (2 sub-exceptions)"
        assert "ValueError: x" in failure.traceback


def test_attributes_that_json_does_not_take_stay_behind() -> None:
    assert raised(Odd()).attributes == {
        "number": 1.5, "text": "t", "nothing": None, "flag": True, "items": [1, {"a": 2}],
    }  # fmt: skip


def test_an_error_without_a_dict_is_kept() -> None:
    class Slotted(Exception):
        __slots__ = ()

    assert raised(Slotted("x")).attributes == {}


def test_long_texts_are_cut_where_it_hurts_least() -> None:
    failure = raised(ValueError("begin" + "x" * 50_000 + "end"))

    assert len(failure.message) == TEXT
    assert failure.message.startswith("begin")
    assert len(failure.traceback) == TRACE
    assert failure.traceback.rstrip().endswith("end")


def test_non_retryable_keeps_the_type_of_the_error_it_is_given() -> None:
    plain = raised(NonRetryable("no such account"))
    wrapping = raised(NonRetryable(Declined("no money", 51)))

    assert (plain.final, plain.type, plain.message) == (True, "durable_celery.errors.NonRetryable", "no such account")
    assert (wrapping.final, wrapping.type, wrapping.message) == (True, f"{__name__}.Declined", "no money")
    assert wrapping.attributes == {"code": 51}


def test_flags_may_be_set() -> None:
    failure = failure_of(ValueError("x"), timed_out=True, final=True)

    assert (failure.timed_out, failure.final, failure.lost) == (True, True, False)
    assert failure_of(NonRetryable(ValueError("x")), lost=True).lost


def test_a_failure_comes_back_from_its_row() -> None:
    for failure in (
        raised(Odd()),
        timed_out("slow"),
        lost("gone"),
        Failure(type="E"),
        Failure(type="E", types=("E",), message="\ud800 \0 ä", earlier=("a", "b"), cancelled=True, final=True),
    ):
        text = failure.to_text()

        assert Failure.from_text(text) == failure
        assert text.isascii()
        assert "\0" not in text


def test_fields_of_a_newer_release_are_ignored() -> None:
    assert Failure.from_text(json.dumps({"type": "E", "newer": 1})) == Failure(type="E")


@pytest.mark.parametrize(
    ("failure", "brief"),
    [
        (Failure(type="pkg.module.E", message="no\nluck"), "E: no luck"),
        (Failure(type="ValueError"), "ValueError"),
        (Failure(type="E", message="a\0b\ud800"), "E: a\\x00b\\ud800"),
        (Failure(type="E", message="x" * 999), "E: " + "x" * 297),
        (timed_out("slow"), "TimeoutError: slow"),
        (lost("gone"), "Lost: gone"),
    ],
    ids=range(6),
)
def test_a_failure_in_brief_is_one_printable_line(failure: Failure, brief: str) -> None:
    assert failure.brief == brief
    assert failure.brief.encode()


def test_printable_text_stays_as_it_is() -> None:
    assert printable("grüße 👩‍👧") == "grüße 👩‍👧"


# -- the errors themselves -------------------------------------------------------------------------------------------

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DurableError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_carries_its_fields_and_pickles(kind: type[errors.DurableError]) -> None:
    error = kind("what happened", instance_id="i", message="field", text="field too", anything=[1])

    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), str(copy)) == (kind, "what happened")
    assert (copy.instance_id, copy.message, copy.text, copy.anything) == ("i", "field", "field too", [1])
    assert str(kind()) == ""


def test_errors_stand_where_the_documentation_says() -> None:
    for kind in ("StepFailed", "ChildFailed", "SignalTimeout", "PollTimeout", "UpdateRejected", "WorkflowFailed",
                 "WorkflowCancelled", "WorkflowTerminated", "WorkflowTimedOut", "WorkflowBlocked"):  # fmt: skip
        assert issubclass(getattr(errors, kind), WorkflowError)
    assert issubclass(errors.BadValue, (ValueError,))
    assert issubclass(errors.BadValue, errors.UsageError)
    assert not issubclass(errors.UsageError, WorkflowError)
    assert not issubclass(errors.ReplayError, WorkflowError)
    assert not issubclass(errors.CancelRequested, Exception)


def test_control_flow_pickles_too() -> None:
    for error in (
        errors.CancelRequested("why"),
        errors.RetryLater(5),
        errors.NonRetryable("x"),
        errors.CompleteLater(),
    ):
        copy = pickle.loads(pickle.dumps(error))

        assert (type(copy), vars(copy), copy.args) == (type(error), vars(error), error.args)


def test_an_error_matches_by_class_or_name_of_itself_and_its_bases() -> None:
    error = StepFailed("x", error_type="pkg.Gone", error_types=("pkg.Gone", "LookupError", "Exception"))

    assert error.matches("pkg.Gone")
    assert error.matches(LookupError)
    assert error.matches(ValueError, LookupError)
    assert not error.matches(ValueError)
    assert not error.matches()


@pytest.mark.parametrize("kind", [(ValueError, LookupError), LookupError("gone"), None])
def test_an_error_is_matched_by_nothing_but_classes_and_names(kind: Any) -> None:
    error = StepFailed("x", error_type="pkg.Gone", error_types=("pkg.Gone", "LookupError", "Exception"))

    with pytest.raises(BadValue, match="matches takes classes or dotted names, got"):
        error.matches(kind)


# -- causes ------------------------------------------------------------------------------------------------------------


def caught(raises: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as found:
        raises()
    return found.value


def raised_from() -> None:
    try:
        raise KeyError("k")
    except KeyError as error:
        raise ValueError("v") from error


def raised_while() -> None:
    try:
        raised_from()
    except ValueError:
        raise LookupError("l")  # noqa: B904


def raised_from_none() -> None:
    try:
        raised_from()
    except ValueError:
        raise LookupError("l") from None


def test_the_chain_of_causes_is_kept_as_text_and_data() -> None:
    failure = failure_of(caught(raised_while))
    assert [(str(cause), cause.implied) for cause in failure.causes] == [
        ("ValueError: v", True),
        ("KeyError: 'k'", True),
    ]
    assert [cause.implied for cause in failure_of(caught(raised_from)).causes] == [False]
    assert failure_of(caught(raised_from_none)).causes == ()
    assert Failure.from_text(failure.to_text()) == failure


def test_only_what_it_was_raised_from_matches() -> None:
    def failed_by(raises: Callable[[], Any]) -> StepFailed:
        failure = failure_of(caught(raises))
        return StepFailed("x", error_type=failure.type, error_types=failure.types, causes=failure.causes)

    assert failed_by(raised_from).matches(KeyError)
    assert failed_by(raised_while).matches(LookupError)
    assert not failed_by(raised_while).matches(ValueError)
    assert not failed_by(raised_from_none).matches(KeyError)


class Strange(Exception):
    def __init__(self, first: int, /, *, second: str) -> None:
        self.pair = (first, second)
        self.itself = self
        self.nan = float("nan")

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_odd_errors_are_links_like_any_other() -> None:
    def raises() -> None:
        try:
            raise Strange(1, second="x")
        except Strange as error:
            raise ValueError("v") from error

    (cause,) = failure_of(caught(raises)).causes
    assert cause.message == "<Strange whose __str__ raised RuntimeError>"
    assert cause.attributes == {"pair": [1, "x"]}
    assert cause.types[0].endswith("Strange")


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert [cause.type for cause in failure_of(first).causes] == ["KeyError"]


def test_a_long_chain_is_cut() -> None:
    error: BaseException = ValueError(0)
    for number in range(1, 100):
        later = ValueError(number)
        later.__cause__, error = error, later
    assert len(failure_of(error).causes) == CAUSES


@pytest.mark.parametrize("kind", [StepFailed, ChildFailed, WorkflowFailed, UpdateRejected])
def test_what_an_error_stands_for_is_its_next_link_and_errors_pickle_with_it(kind: type[Any]) -> None:
    deep = failure_of(caught(raised_from))
    error = kind("outer", error_type=deep.type, error_types=deep.types, message=deep.message, causes=deep.causes)
    failure = failure_of(error)
    assert [str(cause) for cause in failure.causes] == ["ValueError: v", "KeyError: 'k'"]
    assert "causes" not in failure.attributes
    copy = pickle.loads(pickle.dumps(error))
    assert copy.matches(KeyError)
    assert copy.causes == deep.causes


def test_a_failure_of_an_older_release_has_no_causes() -> None:
    assert Failure.from_text('{"type":"E","causes":[{"type":"C","colour":"red"}]}').causes == (Cause(type="C"),)
    assert Failure.from_text('{"type":"E"}').causes == ()
