"""The page of the command line names each verb, and each option that a verb has of its own."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from django_app import verbs

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text()
SAID_FOR_ALL = {"--help", "--json", "--key", "--workflow"}  # below the table


def row(verb: str) -> str:
    """The line of the table about this verb."""
    found: str = next((line for line in PAGE.splitlines() if re.match(rf"\|.*`{verb}[ `].*\|.*\|", line)), "")
    return found


def options(verb: str) -> set[str]:
    parser = argparse.ArgumentParser()
    verbs.add_to(parser)
    choices = next(iter(action.choices for action in parser._actions if action.dest == "verb"))
    assert isinstance(choices, dict)
    return {action.option_strings[-1] for action in choices[verb]._actions if action.option_strings}


@pytest.mark.parametrize("verb", verbs.names())
def test_the_page_of_the_command_line_names_each_verb_and_its_options(verb: str) -> None:
    assert row(verb)
    assert {one for one in options(verb) - SAID_FOR_ALL if f"`{one}" not in row(verb)} == set()


def test_what_is_said_for_all_verbs_stands_below_the_table() -> None:
    below = PAGE.partition("`--help` after a verb")[2]
    assert [one for one in SAID_FOR_ALL - {"--help"} if one not in below] == []
