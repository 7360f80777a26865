"""The benchmarks behind docs/results/; every script runs as a module from the root of the repository."""
