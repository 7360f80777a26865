"""The benchmarks behind docs/results.md; every script runs as a module from the root of the repository."""
