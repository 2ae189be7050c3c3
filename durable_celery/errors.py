"""Every error a user can meet, and nothing else.

Rules of this file:
- An error is built from one text and keyword fields; the fields live in ``__dict__``, so each error pickles and copies.
- The message says what happened with the values, what was expected, and what to do.
- ``WorkflowError`` is the branch that means "this workflow failed"; everything else leaving a body is taken for a bug.
"""

from __future__ import annotations

from typing import Any


class DurableError(Exception):
    """Root of all errors of this package."""

    instance_id: str = ""

    def __init__(self, text: str = "", /, **fields: Any) -> None:
        super().__init__(text)
        self.__dict__.update(fields)


# -- using the package wrongly ------------------------------------------------------------------------------------


class UsageError(DurableError):
    """The code that called did something the language does not allow; retrying will not help."""

    line: str = ""


class BadValue(UsageError, ValueError):
    """A value is not allowed here; also a ``ValueError``. ``path`` names the argument, or leads to it."""

    path: str = ""


class NotInWorkflow(UsageError):
    """A command was built, or a helper of bodies called, outside a running workflow; it names what to use there."""


class NotConfigured(DurableError):
    """The Django app is not installed, not migrated, or not reachable."""


# -- a workflow failed -------------------------------------------------------------------------------------------


class WorkflowError(DurableError):
    """Something a workflow may catch, and that ends it ``FAILED`` when it leaves the body."""


class StepFailed(WorkflowError):
    """A step ended without a result.

    ``attempts`` counts starts, the last one included. ``error_type`` is the dotted name of the last error,
    ``error_types`` those of its base classes too. ``causes`` lead on from that error to where it began, nearest first;
    each has ``type``, ``types``, ``message`` and ``attributes``, and is a line of text by ``str``. ``errors`` and
    ``results`` are set by ``gather`` only.
    """

    step: str = ""
    position: str = ""
    attempts: int = 0
    error_type: str = ""
    error_types: tuple[str, ...] = ()
    message: str = ""
    traceback: str = ""
    timed_out: bool = False
    lost: bool = False
    cancelled: bool = False
    attributes: dict[str, Any] = {}
    earlier: tuple[str, ...] = ()
    causes: tuple[Any, ...] = ()
    results: Any = ()
    errors: Any = ()

    def matches(self, *kinds: type[BaseException] | str) -> bool:
        """Whether the error, or one that caused it, was of one of these classes, subclasses included.

        Dotted names work too. Of a step that is the error its body raised, and what that was raised ``from``; of a
        child also the errors of the step or child that made it fail, however deep.
        """
        return _matches(self, kinds)


class ChildFailed(StepFailed):
    """A child workflow ended ``FAILED``, ``CANCELLED`` or ``TERMINATED``, or its key is taken and it never was.

    ``workflow`` is the child's name, ``child_id`` what ``get_handle`` finds it by ("" if it never was),
    ``child_status`` its final state. ``error_type`` and the like are those of the error that ended it; ``matches``
    looks through the causes too, so ``error.matches(CardDeclined)`` holds however deep the card was declined.
    """

    workflow: str = ""
    child_id: str = ""
    child_status: str = ""


class SignalTimeout(WorkflowError):
    """No message came in time for ``signal.wait(timeout=...)``. ``signal`` is its name."""

    signal: str = ""
    position: str = ""


class PollTimeout(WorkflowError):
    """``poll`` saw no result it liked in time."""

    position: str = ""


class UpdateRejected(WorkflowError):
    """An update was refused, and nothing of it is kept; or, ``accepted``, its function raised this.

    ``error_type`` is the dotted name of the error its validator (or function) raised, ``message`` that error's text.
    """

    update: str = ""
    update_id: str = ""
    accepted: bool = False
    error_type: str = ""
    error_types: tuple[str, ...] = ()
    message: str = ""
    traceback: str = ""
    attributes: dict[str, Any] = {}
    causes: tuple[Any, ...] = ()

    def matches(self, *kinds: type[BaseException] | str) -> bool:
        """Whether the error behind it, or one that caused it, was of one of these classes; dotted names work too."""
        return _matches(self, kinds)


class WorkflowFailed(WorkflowError):
    """The workflow ended ``FAILED``; raised by ``handle.result()``, or by a body to say so. Fields as in StepFailed."""

    error_type: str = ""
    error_types: tuple[str, ...] = ()
    message: str = ""
    traceback: str = ""
    attributes: dict[str, Any] = {}
    causes: tuple[Any, ...] = ()

    def matches(self, *kinds: type[BaseException] | str) -> bool:
        """Whether the error that ended the workflow, or one that caused it, was of one of these classes."""
        return _matches(self, kinds)


class WorkflowCancelled(WorkflowError):
    """The workflow ended ``CANCELLED``; ``reason`` is what ``cancel`` was given. Also: spawned work was given up."""

    reason: str = ""


class WorkflowTerminated(WorkflowError):
    """The workflow ended ``TERMINATED``; ``reason`` is what ``terminate`` was given."""

    reason: str = ""


class WorkflowTimedOut(WorkflowError):
    """The workflow's whole life was longer than its ``execution_timeout``."""


class WorkflowBlocked(WorkflowError):
    """The workflow is ``BLOCKED`` and waits for a person or a new version of the code."""

    waiting_for: str = ""


# -- replay ------------------------------------------------------------------------------------------------------


class ReplayError(DurableError):
    """The journal and the code do not fit; the instance is ``BLOCKED``, its journal untouched."""


class NonDeterminism(ReplayError):
    """The body asked for something else than the journal holds at this position.

    ``recorded`` and ``requested`` say both sides in words; ``recorded_row`` and ``requested_command`` as data (empty
    where there is none). ``before`` and ``after`` are the rows recorded around it, ``line`` where the body stood.
    """

    position: str = ""
    recorded: str = ""
    requested: str = ""
    line: str = ""
    recorded_row: dict[str, Any] = {}
    requested_command: dict[str, Any] = {}
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    moment: dict[str, int] = {}


class WorkflowNotFound(ReplayError):
    """This process knows no workflow of that name and version."""

    name: str = ""
    version: int = 0


# -- values ------------------------------------------------------------------------------------------------------


class PayloadError(DurableError):
    """A value cannot be kept; ``path`` leads to it."""

    path: str = ""


class NotSerializable(PayloadError):
    """A value, named by its path, has no faithful form in JSON."""


class PayloadTooLarge(PayloadError):
    """A value is over ``PAYLOAD_LIMIT``: ``size`` and ``limit`` in bytes."""

    size: int = 0
    limit: int = 0


# -- talking to an instance --------------------------------------------------------------------------------------


class KeyConflict(DurableError):
    """The key is taken by an open instance (or by a closed one, by ``reuse``)."""

    key: str = ""


class InstanceNotFound(DurableError):
    """No instance has this id or key."""

    @classmethod
    def of(cls, id: object) -> InstanceNotFound:
        """Of an id that nothing is stored under."""
        return cls(
            f"there is no workflow instance {id}: it was never started, its start was rolled back, or it was purged; "
            "check the id",
            instance_id=str(id),
        )


class InstanceClosed(DurableError):
    """The instance has ended; the message was not stored."""

    status: str = ""


class StepClosed(DurableError):
    """The step has ended already; the first end wins."""


class NotRetryable(DurableError):
    """``retry()`` cannot take the failure back; the message says why and what to do instead."""


# -- control flow: no errors ---------------------------------------------------------------------------------------


class CancelRequested(BaseException):
    """Thrown at the current yield when the instance is to be cancelled; ``except Exception`` does not catch it.

    Once. Cleanup may yield while it is handled, and in a ``finally``; then raise it again, or return. A body that
    yields elsewhere gets it again, at most 3 times, then is closed. ``reason`` is what ``cancel`` was given.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class RetryLater(Exception):  # noqa: N818 - it is an instruction, not a failure
    """Raise in a step body to be tried again after ``delay`` (timedelta or seconds); no failed attempt is counted."""

    def __init__(self, delay: Any = 0) -> None:
        super().__init__(delay)
        self.delay = delay


class NonRetryable(Exception):  # noqa: N818
    """Raise in a step body to end the step at once. Given an exception, its type and text are what is recorded."""

    def __init__(self, why: str | BaseException = "") -> None:
        super().__init__(why)
        self.why = why


class CompleteLater(Exception):  # noqa: N818
    """Raise in a step body to leave the step open; ``complete_step`` or ``fail_step`` ends it from outside."""


def type_name(kind: type[BaseException]) -> str:
    """The dotted name an error class is recorded under."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _type_name(kind: type[BaseException] | str) -> str:
    if isinstance(kind, type):
        return type_name(kind)
    if isinstance(kind, str):
        return kind
    raise BadValue(
        f"matches takes classes or dotted names, got {kind!r:.80}; write error.matches(CardDeclined, CardExpired)",
        path="kinds",
    )


def _matches(error: StepFailed | UpdateRejected | WorkflowFailed, kinds: tuple[type[BaseException] | str, ...]) -> bool:
    names = {_type_name(kind) for kind in kinds}
    types = {error.error_type, *error.error_types}
    for cause in error.causes:
        if not cause.implied:
            types |= {cause.type, *cause.types}
    return not names.isdisjoint(types)
