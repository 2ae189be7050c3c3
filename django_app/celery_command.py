"""``celery -A proj durable VERB``: the verbs of ``manage.py durable`` under Celery's command line.

Every run of ``celery`` loads it, by the entry point group ``celery.commands``: it imports next to nothing until called.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import click

PASSED_ON: dict[str, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


@click.command("durable", context_settings=PASSED_ON, add_help_option=False)
@click.argument("words", metavar="VERB ...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def durable(context: click.Context, /, words: tuple[str, ...], **_: Any) -> None:
    """See and steer durable workflows."""
    context.exit(run(context.obj.app, list(words)))


def run(app: Any, words: list[str]) -> int:
    """The exit code: 0 fine, 1 a finding or a refusal, 2 wrong usage."""
    app.set_current()
    refusal = set_up()
    if refusal:
        click.echo(refusal, err=True)
        return 2
    from django_app import verbs

    parser = argparse.ArgumentParser(prog="celery durable", description="See and steer durable workflows")
    verbs.add_to(parser)
    return verbs.run(parser.parse_args(words), verbs.Console(sys.stdout, sys.stderr))


def set_up() -> str:
    """Set Django up as a worker does; what is missing for it, in words."""
    import django
    from django.apps import apps
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    try:
        settings.INSTALLED_APPS  # noqa: B018 - reads the settings
    except ImproperlyConfigured as error:
        return f"Django has no settings here ({error}). Set DJANGO_SETTINGS_MODULE, or let the module of -A set it."
    django.setup()
    if not apps.is_installed("django_app"):
        return "durable_celery is not installed in this project: add 'durable_celery' to INSTALLED_APPS."
    return ""
