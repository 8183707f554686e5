"""`python -m agenticx.cli` is `agx`."""

from __future__ import annotations

import sys

from agenticx.cli import main

sys.exit(main())
