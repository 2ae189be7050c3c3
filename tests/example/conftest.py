from __future__ import annotations

import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "example_project"

sys.path.insert(0, str(EXAMPLE))
