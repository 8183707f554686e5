"""The entry point of `python -m agenticx.cli`, the same program as `agx`."""

from __future__ import annotations

import sys

from agenticx.cli import main

sys.exit(main())
