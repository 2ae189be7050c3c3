"""RabbitMQ. There is no wheel of it: it is found in the environment or as a program.

A private server has its own Erlang port mapper, cookie and folder, so it meets neither the system's nor another's.
Its virtual hosts `test0` to `test63` let several test runs share it without seeing each other's queues; the name of
its account, `durable`, tells them that the hosts are there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.service import (
    Service,
    ServiceError,
    answer,
    clean,
    free_port,
    from_environment,
    identity,
    launch,
    private_folder,
    unprivileged,
    wait_until_ready,
)

ACCOUNT = "durable"
ERLANG = "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"
VIRTUAL_HOSTS = ("/", *(f"test{number}" for number in range(64)))


def find() -> Service | None:
    """The service of the environment or a new private one; None if the program is not installed."""
    return from_environment("rabbitmq", answers) or start()


def start(
    port: int | None = None, *, settings: str = "", arguments: str = "", hosts: Sequence[str] = VIRTUAL_HOSTS
) -> Service | None:
    """A private server on `port` (a free one by default), account `durable`.

    `settings` are lines of rabbitmq.conf, `arguments` are for Erlang: what no line of that file can say. Without the
    virtual hosts of `share` (`hosts=["/"]`) it starts in half the time.
    """
    server, mapper = program(), shutil.which("epmd")
    if server is None or mapper is None:
        return None
    port = port or free_port()
    user = unprivileged("rabbitmq")
    folder = private_folder("rabbitmq", user)
    mapper_port = free_port()
    write_settings(folder, settings, hosts)
    mapper_pid = launch([mapper, "-port", str(mapper_port), "-address", "127.0.0.1"], user=user, folder=folder)
    env = environment(folder, port, mapper_port)
    if arguments:
        env[ERLANG] = arguments
    pid = launch([server], user=user, folder=folder, env=env)
    service = Service(
        name="rabbitmq",
        url=f"amqp://{ACCOUNT}:{ACCOUNT}@127.0.0.1:{port}//",
        source="program",
        pids=(pid, mapper_pid),
        folder=str(folder),
        command=(server,),
        user=user,
        env=env,
    )
    return wait_until_ready(service, lambda: answers("127.0.0.1", port), seconds=180)


def ask(service: Service, expression: str, *, seconds: float = 30) -> str:
    """What an Erlang expression gives on a private server: `rabbitmqctl eval`."""
    return control(service, "eval", expression, seconds=seconds)


def queues(service: Service, column: str) -> dict[str, str]:
    """What a private server says of each queue of its virtual host `/`: `messages_unacknowledged`."""
    told = control(service, "-p", "/", "--no-table-headers", "list_queues", "name", column)
    return dict(line.split("\t") for line in told.splitlines())


def control(service: Service, *arguments: str, seconds: float = 30) -> str:
    """What `rabbitmqctl` prints about a private server."""
    program = Path(service.command[0]).with_name("rabbitmqctl")
    env = {name: value for name, value in service.env.items() if name != ERLANG}  # not the server's own arguments
    done = subprocess.run(
        [str(program), "-q", *arguments],
        cwd=service.folder,
        env=clean(env),
        capture_output=True,
        text=True,
        timeout=seconds,
        **identity(service.user),
    )
    if done.returncode != 0:
        raise ServiceError(f"rabbitmqctl {arguments!r} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def share(url: str, number: int) -> str:
    """The virtual host of test run `number` on a server that was started here; another server's URL as it is."""
    address = urlsplit(url)
    if address.username != ACCOUNT:
        return url
    return url.rstrip("/") + "/" + VIRTUAL_HOSTS[1 + number % (len(VIRTUAL_HOSTS) - 1)]


def answers(host: str, port: int) -> bool:
    """Whether Connection.Start (a method frame, type 1) comes after the protocol header."""
    return answer(host, port, b"AMQP\x00\x00\x09\x01").startswith(b"\x01")


def program() -> str | None:
    """Debian's /usr/sbin/rabbitmq-server insists on becoming the user `rabbitmq`; the one it calls does not."""
    for path in ("/usr/lib/rabbitmq/bin/rabbitmq-server", shutil.which("rabbitmq-server")):
        if path is not None and os.access(path, os.X_OK):
            return path
    return None


def environment(folder: Path, port: int, mapper_port: int) -> dict[str, str]:
    return {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "no-such-file"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }


def write_settings(folder: Path, settings: str, hosts: Sequence[str]) -> None:
    definitions = folder / "definitions.json"
    lines = [f"load_definitions = {definitions}", "log.console.level = warning", "disk_free_limit.absolute = 50MB"]
    (folder / "rabbitmq.conf").write_text("\n".join([*lines, settings, ""]))
    (folder / "plugins").write_text("[].\n")
    rights = {"user": ACCOUNT, "configure": ".*", "write": ".*", "read": ".*"}
    account = {"name": ACCOUNT, "password_hash": password_hash(ACCOUNT), "tags": "administrator"}
    definitions.write_text(
        json.dumps(
            {
                "users": [{**account, "hashing_algorithm": "rabbit_password_hashing_sha256"}],
                "vhosts": [{"name": host} for host in hosts],
                "permissions": [{**rights, "vhost": host} for host in hosts],
            }
        )
    )
    for path in folder.iterdir():
        path.chmod(0o644)


def password_hash(password: str) -> str:
    salt = b"test"
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
