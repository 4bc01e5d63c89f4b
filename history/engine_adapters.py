"""A pytest plugin: notes what an engine's tests find, and puts docs/adopting.md's examples in place of its classes.

For ``python -m pytest -p history.engine_adapters`` in an environment that has the engine, steered by variables of
the environment; `history.engine_tests` sets them and compares two runs.
"""

import importlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# The engine whose classes are replaced, if any are; and where the outcomes are written.
REPLACE = "KVPOOL_ENGINE_ADAPTERS"
OUTCOMES = "KVPOOL_ENGINE_OUTCOMES"


class Replacement(NamedTuple):
    """A class of an engine and what stands for it."""

    module: str
    name: str
    # In docs/adopting.md: the example, and the class there.
    example: str
    adapter: str


REPLACEMENTS = {
    "vllm": (
        Replacement("vllm.v1.core.kv_cache_utils", "FreeKVCacheBlockQueue", "vllm blocks", "KvpoolBlockQueue"),
        Replacement("vllm.v1.core.block_pool", "BlockPool", "vllm blocks", "KvpoolBlockPool"),
        Replacement(
            "vllm.v1.kv_offload.cpu.manager", "CPUOffloadingManager", "vllm offload", "KvpoolOffloadingManager"
        ),
    ),
    "lmcache": (
        Replacement("lmcache.v1.memory_management", "AddressManager", "lmcache addresses", "KvpoolAddressManager"),
    ),
}


class Difference(NamedTuple):
    """A test whose outcome may differ, and why."""

    # What the test's name and the error begin with or contain.
    test: str
    error: str
    reason: str


_LINKS = "reads or walks the links between the blocks of vLLM's own list, which KvpoolBlockQueue has not"
_CHUNKS = "expects the chunks that were freed last; KvpoolOffloadingManager hands out neighbours, ascending"

DIFFERENCES = (
    Difference("tests/v1/core/test_kv_cache_utils.py::test_free_kv_cache_block_queue", "fake_free_list_", _LINKS),
    Difference(
        "tests/v1/core/test_kv_cache_utils.py::test_free_kv_cache_block_queue_append_n",
        "num_pages must be positive",
        "appends blocks to a queue that was built of none; KvpoolBlockQueue holds the blocks it was built of",
    ),
    Difference("tests/v1/core/test_prefix_caching.py::test_prefill[", "fake_free_list_", _LINKS),
    Difference("tests/v1/core/test_prefix_caching.py::test_cache_hit_local_and_external", "fake_free_list_", _LINKS),
    Difference("tests/v1/kv_offload/cpu/test_manager.py::test_cpu_manager", "array_equal", _CHUNKS),
    Difference(
        "tests/v1/kv_offload/cpu/test_manager.py::test_already_stored_chunk_not_evicted_during_prepare_store",
        "array_equal",
        _CHUNKS,
    ),
    Difference(
        "tests/v1/kv_offload/cpu/test_manager.py::test_cpu_manager_reports_cache_usage_gauge",
        "num_pages must be positive",
        "builds an offload tier of no chunks; a pool of kvpool has one page at least",
    ),
)

_outcomes: dict[str, tuple[str, str]] = {}
_built: Counter[str] = Counter()


def replace(replacement: Replacement) -> None:
    """Put the adapter where the engine's class is, in every module that has imported it by its name."""
    from benchmarks import adopting

    original = getattr(importlib.import_module(replacement.module), replacement.name)
    adapter = getattr(adopting.run(replacement.example), replacement.adapter)
    _count(adapter)
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(replacement.name) is original:
            setattr(module, replacement.name, adapter)


def _count(adapter: type) -> None:
    """Have a class count how often it is built: a run in which it never was has shown nothing."""
    build = adapter.__init__

    def counting(self: Any, *arguments: Any, **options: Any) -> None:
        _built[adapter.__name__] += 1
        build(self, *arguments, **options)

    adapter.__init__ = counting
    _built[adapter.__name__] += 0


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Replace before the engine's conftest imports what it tests."""
    for replacement in REPLACEMENTS[os.environ[REPLACE]] if REPLACE in os.environ else ():
        replace(replacement)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what vLLM does after each test for the GPU's sake, by its own switch: it takes half a second."""
    if any(line.startswith("skip_global_cleanup") for line in config.getini("markers")):
        for item in items:
            item.add_marker("skip_global_cleanup")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note what could not be collected."""
    if report.failed:
        _outcomes[report.nodeid] = ("failed", f"not collected: {_last_line(report)}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test's outcome: the worst of its phases."""
    before = _outcomes.get(report.nodeid, ("passed", ""))[0]
    if report.failed:
        _outcomes[report.nodeid] = ("failed", _error(report))
    elif before != "failed" and report.skipped:
        _outcomes[report.nodeid] = ("skipped", _last_line(report))
    else:
        _outcomes.setdefault(report.nodeid, ("passed", ""))


def pytest_sessionfinish() -> None:
    """Write what was found."""
    Path(os.environ[OUTCOMES]).write_text(json.dumps({"outcomes": _outcomes, "built": _built}))


def _error(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash else _last_line(report)


def _last_line(report: pytest.CollectReport | pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    lines = [line.strip() for line in str(report.longrepr).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
