"""Which node a command becomes in the tree of what a body waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from durable_celery.core.chaining import ChainCommand, ChainNode, GroupCommand, GroupNode
from durable_celery.core.children import ChildCommand, ChildNode
from durable_celery.core.commands import (
    Command,
    GatherCommand,
    ShieldCommand,
    SignalCommand,
    StepCommand,
    TimerCommand,
)
from durable_celery.core.conditions import ConditionCommand, ConditionNode
from durable_celery.core.gathering import GatherNode
from durable_celery.core.handles import JoinCommand, SpawnCommand, SpawnNode, StopCommand, StopNode, WatchNode
from durable_celery.core.mapping import MapCommand, MapNode
from durable_celery.core.nodes import Node, SignalNode, StepNode, TimerNode
from durable_celery.core.polling import PollCommand, PollNode
from durable_celery.core.racing import RaceCommand, RaceNode
from durable_celery.errors import UsageError

if TYPE_CHECKING:
    from durable_celery.core.run import Run


def node_of(run: Run, command: Command[Any], position: str, parent: Node | None, **place: Any) -> Node:
    """The node for a command; it is not open yet. ``place`` are the keywords of ``Node``."""
    if isinstance(command, StepCommand):
        return StepNode(run, command, position, parent, **place)
    if isinstance(command, ShieldCommand):
        return node_of(run, command.member, position, parent, **{**place, "shielded": True})
    if isinstance(command, ChildCommand):
        return ChildNode(run, command, position, parent, **place)
    if isinstance(command, TimerCommand):
        return TimerNode(run, command, position, parent, **place)
    if isinstance(command, SignalCommand):
        return SignalNode(run, command, position, parent, **place)
    if isinstance(command, ChainCommand):
        return ChainNode(run, command, position, parent, **place)
    if isinstance(command, GroupCommand):
        return GroupNode(run, command, position, parent, **place)
    if isinstance(command, GatherCommand):
        return GatherNode(run, command, position, parent, **place)
    if isinstance(command, MapCommand):
        return MapNode(run, command, position, parent, **place)
    if isinstance(command, RaceCommand):
        return RaceNode(run, command, position, parent, **place)
    if isinstance(command, ConditionCommand):
        return ConditionNode(run, command, position, parent, **place)
    if isinstance(command, PollCommand):
        return PollNode(run, command, position, parent, **place)
    if isinstance(command, SpawnCommand):
        return SpawnNode(run, command, position, parent, **place)
    if isinstance(command, JoinCommand):
        return WatchNode(run, command, position, parent, **place)
    if isinstance(command, StopCommand):
        return StopNode(run, command, position, parent, **place)
    raise UsageError(f"{command.describe()} cannot be a part of another command; yield it by itself")
