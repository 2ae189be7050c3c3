"""Starting a thread that leaves signals to the main thread."""

from __future__ import annotations

import signal
import threading


def start_deaf(thread: threading.Thread) -> None:
    """Signals to the process are for its main thread: billiard masks them there while it holds a lock of the pool."""
    if not hasattr(signal, "pthread_sigmask"):
        thread.start()
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
