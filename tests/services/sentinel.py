"""Redis with a replica and a Sentinel that makes it the master once the first one is gone."""

from __future__ import annotations

from tests.services import redis
from tests.services.service import Service, answer, free_port, launch, private_folder, wait_until_ready

MASTER = "durable"  # the name by which the Sentinel knows them


def start() -> Service | None:
    """Processes: the Sentinel, the master, the replica."""
    program, source = redis.server()
    if program is None:
        return None
    folder = private_folder("sentinel", None)
    port, master_port, replica_port = free_port(), free_port(), free_port()
    common = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
    for name in ("master", "replica"):
        (folder / name).mkdir()
    master = launch(
        [program, "--port", str(master_port), *common, "--dir", str(folder / "master")], user=None, folder=folder
    )
    replica = launch(
        [program, "--port", str(replica_port), *common, "--dir", str(folder / "replica"),
         "--replicaof", f"127.0.0.1 {master_port}"], user=None, folder=folder,
    )  # fmt: skip
    settings = folder / "sentinel.conf"  # which the Sentinel writes as well
    settings.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor {MASTER} 127.0.0.1 {master_port} 1\n"
        f"sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 5000\n"
    )
    pid = launch([program, str(settings), "--sentinel"], user=None, folder=folder)
    service = Service(
        name="sentinel", url=f"sentinel://127.0.0.1:{port}/0", source=source, pids=(pid, master, replica),
        folder=str(folder),
    )  # fmt: skip
    return wait_until_ready(service, lambda: knows_replica(port), seconds=120)


def knows_replica(port: int) -> bool:
    """Whether the Sentinel knows a replica that is in step with its master: before that there is none to promote."""
    told = answer("127.0.0.1", port, f"SENTINEL replicas {MASTER}\r\n".encode(), 4096)
    return b"master-link-status\r\n$2\r\nok" in told


def master_port(service: Service) -> int:
    """Where the master is now, as the Sentinel says."""
    port = int(service.url.rpartition(":")[2].partition("/")[0])
    told = answer("127.0.0.1", port, f"SENTINEL get-master-addr-by-name {MASTER}\r\n".encode())
    return int(told.split(b"\r\n")[4])
