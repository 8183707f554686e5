"""What the engine costs, beside a floor measured in the same run: `python -m tests.benchmarks`."""
