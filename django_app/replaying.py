"""``python -m django_app.replaying``: replays for the testing kit, which starts it with another hash seed."""

from __future__ import annotations

import os
import pickle
import sys


def main() -> None:
    """Set Django up and answer on the standard output; what the code under test prints goes to the standard error."""
    import django

    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        django.setup()
        from durable_celery.testing.replaying import serve

        def write(answer: object) -> None:
            pickle.dump(answer, answers)
            answers.flush()

        serve(lambda: pickle.load(sys.stdin.buffer), write)


if __name__ == "__main__":
    main()
