"""Calls that reach out of the body: clocks, dice, uuids, the environment, threads, the network. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from durable_celery.lints.code import Code
from durable_celery.lints.finding import Hit

CLOCKS = {
    "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time",
    "datetime.datetime": "now utcnow today",
    "datetime.date": "today",
    "django.utils.timezone": "now",
}
CLOCKS_WITHOUT_ARGUMENT = {"time": "localtime gmtime ctime", "django.utils.timezone": "localtime localdate"}
SLEEPS = {"time": "sleep", "asyncio": "sleep"}
DICE = {
    "random": "random uniform randint randrange choice choices sample shuffle gauss normalvariate betavariate "
    "expovariate getrandbits randbytes triangular SystemRandom",
    "os": "urandom getrandom",
}
DICE_MODULES = ("secrets", "numpy.random")
UUIDS = {"uuid": "uuid1 uuid4 uuid6 uuid7 uuid8 getnode"}
ENVIRONMENT = {
    "os": "getenv getenvb getpid getppid getcwd getlogin uname cpu_count getloadavg",
    "socket": "gethostname getfqdn",
}
ENVIRONMENT_MODULES = ("platform",)
VARIABLES = ("os.environ", "os.environb", "sys.argv")
THREADS = {
    "threading": "Thread Timer Lock RLock Event Condition Semaphore BoundedSemaphore Barrier",
    "asyncio": "run create_task ensure_future gather get_event_loop new_event_loop to_thread",
    "os": "fork system popen",
}
THREAD_MODULES = ("_thread", "multiprocessing", "billiard", "concurrent.futures", "subprocess", "gevent", "eventlet")
NETWORK = {
    "socket": "socket create_connection getaddrinfo gethostbyname",
    "django.core.mail": "send_mail send_mass_mail mail_admins mail_managers EmailMessage EmailMultiAlternatives",
    "urllib.request": "urlopen urlretrieve Request build_opener",
}
NETWORK_MODULES = (
    "requests", "httpx", "aiohttp", "urllib3", "http.client", "smtplib", "ftplib", "imaplib", "poplib", "xmlrpc.client",
    "redis", "boto3", "paramiko", "websockets",
)  # fmt: skip


def clocks(code: Code) -> Iterator[Hit]:
    """Reading the clock, or sleeping in place."""
    yield from _called(code, CLOCKS)
    yield from (hit for hit in _called(code, CLOCKS_WITHOUT_ARGUMENT) if not _arguments(hit))
    for hit in _called(code, SLEEPS):
        yield Hit(node=hit.node, what=hit.what, instead="write yield from sleep(...) of durable_celery")


def dice(code: Code) -> Iterator[Hit]:
    """Dice that are not the run's own."""
    yield from _called(code, DICE, DICE_MODULES)
    yield from (hit for hit in _called(code, {"random": "Random"}) if not _arguments(hit))


def uuids(code: Code) -> Iterator[Hit]:
    """Uuids of the clock or of dice; uuid3 and uuid5 are made of what they are given."""
    yield from _called(code, UUIDS)


def environment(code: Code) -> Iterator[Hit]:
    """What differs from process to process."""
    yield from _called(code, ENVIRONMENT, ENVIRONMENT_MODULES)
    for node in code.nodes:
        if isinstance(node, (ast.Attribute, ast.Name)) and code.is_named(node, *VARIABLES):
            yield Hit(node=node, what=ast.unparse(node))


def threads(code: Code) -> Iterator[Hit]:
    """Threads, processes and event loops."""
    yield from _called(code, THREADS, THREAD_MODULES)


def network(code: Code) -> Iterator[Hit]:
    """Talking to others."""
    yield from _called(code, NETWORK, NETWORK_MODULES)


def _called(code: Code, table: dict[str, str], modules: tuple[str, ...] = ()) -> Iterator[Hit]:
    """Calls of what the table names, or of anything in these modules."""
    for call in code.calls():
        for name in code.names(call.func):
            module, _, attribute = name.rpartition(".")
            if attribute in table.get(module, "").split() or any(name.startswith(f"{m}.") for m in modules):
                yield Hit(node=call, what=f"{ast.unparse(call.func)}({'...' if call.args or call.keywords else ''})")
                break


def _arguments(hit: Hit) -> bool:
    return isinstance(hit.node, ast.Call) and bool(hit.node.args or hit.node.keywords)
