"""The files in deploy/: each parses, the commands in them exist, and the graces keep to the formula of the page."""

from __future__ import annotations

import configparser
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.bin.celery import celery as celery_cli
from django.core.management import get_commands, load_command_class

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
GRACE = 60 + 3 + 7  # the shop's STEP_TIMEOUT, and what docs/deployment.md adds
yaml: Any = importlib.import_module("yaml")


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "systemd" / name).read_text())
    return parser


def supervisor() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.read_string((DEPLOY / "supervisor.conf").read_text())
    return parser


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def manifests() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {f"{one['kind']} {one['metadata']['name']}": one for one in found}


def pods() -> dict[str, dict[str, Any]]:
    return {name: one["spec"]["template"]["spec"] for name, one in manifests().items() if "template" in one["spec"]}


def commands() -> Iterator[list[str]]:
    for path in sorted((DEPLOY / "systemd").iterdir()):
        service = unit(path.name)["Service"]
        yield from (shlex.split(service[key]) for key in ("ExecStart", "ExecStartPre") if key in service)
    for section in supervisor().values():
        if "command" in section:
            yield shlex.split(section["command"])
    yield from (one["command"] for one in compose()["services"].values() if "command" in one)
    for pod in pods().values():
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            yield container["command"]
            probe = container.get("livenessProbe", {}).get("exec")
            if probe:
                assert probe["command"][:2] == ["sh", "-c"]
                yield shlex.split(probe["command"][2])
    found = re.search(r"^CMD \[(.+)\]$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert found
    yield shlex.split(found[1].replace(",", " "))


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_command_exists_with_its_options(command: list[str]) -> None:
    program, *rest = command
    name = program.rpartition("/")[2]
    if name == "celery":
        assert rest[:2] == ["-A", "project"]
        verb = celery_cli.commands[rest[2]]
        known = {option for param in verb.params for option in (*param.opts, *param.secondary_opts)}
        given = {word.partition("=")[0] for word in rest[3:] if word.startswith("-")}
        assert given <= known, given - known
    elif name == "python":
        assert (ROOT / "example_project" / rest[0]).is_file()
        load_command_class(get_commands()[rest[1]], rest[1]).create_parser("manage.py", rest[1]).parse_args(rest[2:])
    else:
        assert (name, rest[0]) == ("gunicorn", "project.wsgi:application")
        assert "gunicorn" in (DEPLOY / "Dockerfile").read_text()


def test_every_grace_is_that_of_the_formula() -> None:
    settings = (ROOT / "example_project" / "project" / "settings.py").read_text()
    assert '"STEP_TIMEOUT": timedelta(minutes=1)' in settings
    assert "the longest step's timeout + 3 s + 7 s" in (ROOT / "docs" / "deployment.md").read_text()
    worker = unit("durable-worker.service")["Service"]
    assert int(worker["TimeoutStopSec"]) == GRACE
    assert (worker["KillMode"], worker["KillSignal"]) == ("mixed", "SIGTERM")
    program = supervisor()["program:durable-worker"]
    assert int(program["stopwaitsecs"]) == GRACE
    assert (program["stopasgroup"], program["killasgroup"]) == ("false", "true")
    assert compose()["services"]["worker"]["stop_grace_period"] == f"{GRACE}s"
    assert pods()["Deployment durable-worker"]["terminationGracePeriodSeconds"] == GRACE


def test_compose_has_all_that_the_shop_needs() -> None:
    services = compose()["services"]
    assert set(services) == {"migrate", "web", "worker", "beat", "postgres", "redis"}
    for name in ("web", "worker", "beat"):
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert services[name]["environment"].keys() == {"DATABASE_URL", "BROKER_URL", "SECRET_KEY", "ALLOWED_HOSTS"}
    build = services["web"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_what_the_image_copies_is_there() -> None:
    ignored = set((ROOT / ".dockerignore").read_text().split())
    copied = re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert {"pyproject.toml", "durable_celery", "django_app", "example_project"} <= set(names)
    for name in names:
        assert (ROOT / name).exists(), name
        assert name not in ignored


def test_every_unit_starts_again_and_runs_in_the_project() -> None:
    for path in sorted((DEPLOY / "systemd").iterdir()):
        found = unit(path.name)
        assert set(found.sections()) == {"Unit", "Service", "Install"}
        assert found["Service"]["Restart"] == "always"
        assert found["Service"]["WorkingDirectory"].endswith("/example_project")


def test_kubernetes_runs_one_beat_and_probes_what_it_restarts() -> None:
    found = manifests()
    assert found["Deployment durable-beat"]["spec"]["replicas"] == 1
    for name, pod in pods().items():
        (container,) = pod["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "durable-shop"}}]
        if name.startswith("Deployment"):
            assert container["livenessProbe"]
    for name, one in found.items():
        if name.startswith("Deployment"):
            assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"]


def test_the_shop_answers_to_the_name_of_its_service() -> None:
    (web,) = pods()["Deployment durable-web"]["containers"]
    (hosts,) = [one["value"] for one in web["env"] if one["name"] == "ALLOWED_HOSTS"]
    service = next(name for name in manifests() if name.startswith("Service "))
    assert service.removeprefix("Service ") in hosts.split(",")
    assert compose()["services"]["web"]["environment"]["ALLOWED_HOSTS"] == "${ALLOWED_HOSTS:-localhost,127.0.0.1}"


def test_the_page_names_every_file() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    for name in ("deploy/Dockerfile", "deploy/compose.yaml", "deploy/systemd/", "deploy/supervisor.conf",
                 "deploy/kubernetes.yaml"):  # fmt: skip
        assert f"`{name}`" in page
        assert (ROOT / name).exists()
