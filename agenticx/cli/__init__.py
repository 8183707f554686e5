"""The `agx` command line, also installed as `agenticx`."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raise, not even for a Ctrl-C while the command is imported."""
    try:
        from agenticx.cli.interrupt_handling import exit_on_ctrl_c

        if argv is None:
            exit_on_ctrl_c()
        from agenticx.cli.app import main as run

        return run(argv)
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as a shell reports it
