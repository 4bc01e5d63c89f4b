"""What is run by hand: the suite's cases at any size, traces, budgets; `python -m benchmarks --help` lists them."""

# Before torch is imported: figures of one thread, as the suite's are.
import benchmarks  # noqa: F401
