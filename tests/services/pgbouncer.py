"""PgBouncer in transaction mode, in front of a PostgreSQL. There is no wheel of it: it is a program, or not there."""

from __future__ import annotations

import shutil
from urllib.parse import urlsplit

from tests.services import postgres
from tests.services.service import Service, free_port, launch, private_folder, unprivileged, wait_until_ready

POOL = 4  # connections to the server for each database, however many clients there are


def start(server_url: str) -> Service | None:
    """A private pool before the server of ``server_url``, every database of it under its own name."""
    program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if program is None:
        return None
    server, port = urlsplit(server_url), free_port()
    user = unprivileged("postgres")
    folder = private_folder("pgbouncer", user)
    password = f" password={server.password}" if server.password else ""
    settings = [
        "[databases]",
        f"* = host={server.hostname} port={server.port} user={server.username}{password}",
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = any",
        "pool_mode = transaction",
        f"default_pool_size = {POOL}",
        "max_client_conn = 200",
        "ignore_startup_parameters = extra_float_digits",
    ]
    path = folder / "pgbouncer.ini"
    path.write_text("\n".join([*settings, ""]))
    path.chmod(0o644)
    pid = launch([program, str(path)], user=user, folder=folder)
    url = f"postgres://{server.username}@127.0.0.1:{port}/{server.path.lstrip('/')}"
    service = Service(name="pgbouncer", url=url, source="program", pids=(pid,), folder=str(folder))
    return wait_until_ready(service, lambda: postgres.answers("127.0.0.1", port))
