"""Benchmarks of the engine, each beside a floor measured in the same run."""
