"""Run the engines' own tests twice, as they are and over kvpool, and explain each that differs.

The tests are in the source distributions, which pip fetches; with an environment that has what they import, on the
CPU, they stay below ``.asv/engines``. What replaces the engines' classes is what docs/adopting.md says.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from history import UsageError, asv_calls
from history.engine_adapters import DIFFERENCES, OUTCOMES, REPLACE, Difference
from history.paths import ROOT, SCRATCH

HOME = SCRATCH / "engines"
PEERS = ROOT / "history" / "peers.txt"
REQUIREMENTS = ROOT / "history" / "engine_tests.txt"
MODELS = ROOT / "history" / "engine_models.json"

# Ours: the examples of docs/adopting.md, and what drives the engines' classes beside kvpool's.
BESIDE = ("tests/engines/test_adopting.py", "tests/engines/test_sglang*.py")


@dataclass(frozen=True)
class Suite:
    """The tests of an engine that its pages, blocks and ranges of memory go through."""

    engine: str
    # What is taken out of the source distribution. Where the package itself is not among it, it is installed.
    unpacked: tuple[str, ...]
    tests: tuple[str, ...]
    # Files and tests among them that cannot run here, and why.
    left_out: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


SUITES = (
    Suite(
        "vllm",
        unpacked=("vllm", "vllm.egg-info", "tests", "pyproject.toml"),
        tests=(
            "tests/v1/core",
            "tests/v1/kv_offload",
            "tests/v1/simple_kv_offload",
            "tests/v1/kv_connector/unit/offloading_connector",
            "tests/v1/kv_connector/unit/test_simple_cpu_offload_connector.py",
            "tests/v1/kv_connector/unit/test_simple_cpu_offload_metrics.py",
            "tests/v1/kv_connector/unit/test_cache_pollution_prevention.py",
            "tests/v1/kv_connector/unit/test_error_propagation.py",
            "tests/v1/kv_connector/unit/test_invalid_blocks_correctness.py",
            "tests/v1/kv_connector/unit/test_kv_load_failure_recovery.py",
            "tests/v1/kv_connector/unit/test_remote_decode_lifecycle.py",
            "tests/v1/kv_connector/unit/test_remote_prefill_lifecycle.py",
        ),
        left_out={
            "tests/v1/core/test_scheduler_e2e.py": "runs a model",
            "tests/v1/core/test_reset_prefix_cache_e2e.py": "runs a model",
            "tests/v1/core/prefix_cache/test_hybrid_prefix_cache_hit_rate.py": "runs a server",
            "tests/v1/core/test_priority_scheduler_random.py": "needs the processor of a vision model",
            "tests/v1/kv_offload/cpu/test_gpu_worker.py": "copies to and from a GPU",
            "tests/v1/kv_offload/cpu/test_shared_offload_region.py::test_multiprocess_race_construct_and_write": (
                "gives processes ten seconds, in which a busy machine does not import an engine"
            ),
        },
        environment={
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(HOME / "models"),
        },
    ),
    Suite(
        "lmcache",
        unpacked=("tests", "pytest.ini"),
        tests=(
            "tests/v1/test_address_manager.py",
            "tests/v1/test_memory_management.py",
            "tests/v1/test_memory_allocator_import_surface.py",
            "tests/v1/distributed/memory_manager",
            "tests/v1/distributed/test_devdax_l1_allocator.py",
            "tests/v1/distributed/test_l1_manager.py",
            "tests/v1/distributed/test_l1_memory_manager.py",
            "tests/v1/distributed/test_l1_owner.py",
            "tests/v1/distributed/test_l1_single_region.py",
            "tests/v1/storage_backend/test_local_cpu_backend.py",
            "tests/v1/storage_backend/test_pd_backend_buffer_alignment.py",
        ),
        environment={"LMCACHE_TRACK_USAGE": "false"},
    ),
)


@dataclass(frozen=True)
class Outcomes:
    """What a run of tests found: of each test the outcome and its error, and how often each adapter was built."""

    tests: Mapping[str, tuple[str, str]]
    built: Mapping[str, int] = field(default_factory=dict)

    def count(self, outcome: str) -> int:
        """Return how many tests had an outcome."""
        return sum(found == outcome for found, _ in self.tests.values())


def run(engines: Iterable[str] = ()) -> int:
    """Run the suites of the engines, and ours beside them; return 1 where a test differs without a reason."""
    prepare()
    for suite in SUITES:
        unpack(suite)
    status = 0
    for suite in SUITES:
        if not engines or suite.engine in engines:
            as_they_are, adapted = (run_suite(suite, adapters) for adapters in (False, True))
            unexplained = [test for test, _, reason in differing(as_they_are, adapted) if reason is None]
            if unexplained:
                # Some wait for processes or clocks: what differs for no reason is tried again, both ways.
                as_they_are, adapted = (
                    Outcomes({**found.tests, **run_suite(suite, adapters, unexplained).tests}, found.built)
                    for found, adapters in ((as_they_are, False), (adapted, True))
                )
            lines, found = report(f"{suite.engine} {pinned()[suite.engine]}", as_they_are, adapted)
            print("\n".join(lines), flush=True)
            status |= found
    return status | beside()


def report(
    name: str, as_they_are: Outcomes, adapted: Outcomes, differences: Iterable[Difference] = DIFFERENCES
) -> tuple[list[str], int]:
    """Return what two runs of an engine's tests say, in lines, and 1 where that is not all as it should be."""
    changes = differing(as_they_are, adapted, differences)
    lines = [
        "",
        f"{name}: {as_they_are.count('passed')} tests pass as they are, {adapted.count('passed')} over kvpool, "
        f"{len(changes)} differ",
    ]
    # An error of many lines often says in the second what the first is about.
    errors = [" ".join(why.split("\n")[:2]) for found, why in as_they_are.tests.values() if found == "failed"]
    own = Counter(" ".join(error.split())[:160] for error in errors)
    lines += [f"  {count} fail as they are, for want of what is not here: {why}" for why, count in own.most_common()]
    skipped = as_they_are.count("skipped")
    lines += [f"  {skipped} are skipped as they are"] if skipped else []
    lines += [f"  {adapter} was built {times} times" for adapter, times in adapted.built.items()]
    for reason, tests in _by_reason(changes).items():
        lines += [f"  {reason or 'WITHOUT A REASON'}:", *(f"    {line}" for line in tests)]
    unused = not adapted.built or not all(adapted.built.values())
    if unused:
        lines.append("  an adapter was never built: its tests have shown nothing")
    if not as_they_are.count("passed"):
        lines.append("  no test passes as it is: nothing was compared")
    unexplained = any(reason is None for *_, reason in changes)
    return lines, int(unused or unexplained or not as_they_are.count("passed"))


def _by_reason(changes: list[tuple[str, str, str | None]]) -> dict[str | None, list[str]]:
    grouped: dict[str | None, list[str]] = {}
    for test, change, reason in changes:
        grouped.setdefault(reason, []).append(test if reason else f"{test}: {change}")
    return grouped


def differing(
    as_they_are: Outcomes, adapted: Outcomes, differences: Iterable[Difference] = DIFFERENCES
) -> list[tuple[str, str, str | None]]:
    """Return each test with another outcome over kvpool: its name, what changed, and the reason if there is one."""
    nothing = ("not run", "")
    changes = []
    for test in sorted({*as_they_are.tests, *adapted.tests}):
        (before, _), (after, error) = as_they_are.tests.get(test, nothing), adapted.tests.get(test, nothing)
        if before != after:
            reasons = [each.reason for each in differences if test.startswith(each.test) and each.error in error]
            first = error.splitlines()[0] if error else ""
            changes.append((test, f"{before}, over kvpool {after} {first}".rstrip(), reasons[0] if reasons else None))
    return changes


def prepare() -> None:
    """Make the environment, unless it is there as the pins say."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (ROOT / "pyproject.toml").open("rb") as file:
        development = tomllib.load(file)["project"]["optional-dependencies"]["dev"]
    libraries = [line for line in development if re.match("(torch|numpy|numba|pytest|hypothesis|asv_runner)==", line)]
    # vLLM's own package is taken out of its source distribution: the wheel has 300 MB of kernels.
    engines = [f"{name}=={version}" for name, version in pinned().items() if name != "vllm"]
    wanted = "\n".join((sys.version, *libraries, *engines))
    stamp = HOME / "environment.txt"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print("The environment in which the engines' tests run is made: two minutes, and 2 GB on disk.", flush=True)
    shutil.rmtree(HOME / "env", ignore_errors=True)
    _call([sys.executable, "-m", "venv", str(HOME / "env")], "no environment can be made")
    _install(libraries)
    _install(["--no-deps", *engines])
    _write_models(json.loads(MODELS.read_text()), HOME / "models" / "hub")
    stamp.write_text(wanted)


def pinned() -> dict[str, str]:
    """Return the pinned version of each engine and of what they import: the pins of `make peers`, and a few more."""
    lines = (PEERS.read_text() + REQUIREMENTS.read_text()).splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def unpack(suite: Suite) -> None:
    """Fetch an engine's source distribution, and unpack what its tests need of it."""
    folder = HOME / suite.engine
    version = pinned()[suite.engine]
    stamp = folder / "version.txt"
    wanted = "\n".join((version, *suite.unpacked))
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    archive = download(f"{suite.engine}=={version}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with tarfile.open(archive) as file:
        for member in file.getmembers():
            # All is in one folder, which names the version.
            inside = member.name.partition("/")[2]
            if inside.partition("/")[0] in suite.unpacked:
                member.name = inside
                file.extract(member, folder, filter="data")
    stamp.write_text(wanted)


def download(pin: str) -> Path:
    """Fetch a source distribution from the package index that pip is set up for; return the file."""
    backend = HOME / "backend" / "setuptools"
    backend.mkdir(parents=True, exist_ok=True)
    (backend / "__init__.py").write_text("")
    shutil.copy(ROOT / "history" / "source_only.py", backend / "build_meta.py")
    folder = HOME / "sources"
    command = [
        "download",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-binary",
        ":all:",
        "-d",
        str(folder),
        pin,
    ]
    _pip(command, f"{pin} cannot be fetched", {"PYTHONPATH": str(backend.parent)})
    name, _, version = pin.partition("==")
    return folder / f"{name}-{version}.tar.gz"


def _install(what: list[str]) -> None:
    _pip(["install", "--quiet", *what], "the package index does not give what the engines' tests need", {})


def _pip(command: list[str], failure: str, environment: dict[str, str]) -> None:
    _call([str(python()), "-m", "pip", "--disable-pip-version-check", *command], failure, environment)


def _call(command: list[str], failure: str, environment: Mapping[str, str] = {}) -> None:
    """Run a program; raise UsageError with what it said last where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if done.returncode:
        raise UsageError(f"{failure}: {asv_calls.explanation(done.stderr)}")


def _write_models(models: dict[str, dict[str, object]], folder: Path) -> None:
    """Write the sizes of models where the engines look for what was downloaded: the tests read no more of a model."""
    revision = "0" * 40
    for name, sizes in models.items():
        model = folder / ("models--" + name.replace("/", "--"))
        snapshot = model / "snapshots" / revision
        snapshot.mkdir(parents=True, exist_ok=True)
        (snapshot / "config.json").write_text(json.dumps(sizes))
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs" / "main").write_text(revision)


def run_suite(suite: Suite, adapters: bool, tests: Iterable[str] = ()) -> Outcomes:
    """Run an engine's tests, or some of them, and return what they found."""
    folder, outcomes = HOME / suite.engine, HOME / "outcomes.json"
    outcomes.unlink(missing_ok=True)
    environment = {**os.environ, **suite.environment, OUTCOMES: str(outcomes)}
    environment["PYTHONPATH"] = os.pathsep.join((str(folder), str(ROOT)))
    environment.pop(REPLACE, None)
    if adapters:
        environment[REPLACE] = suite.engine
    how = ["-q", "--tb=short", "--continue-on-collection-errors", "-p", "no:cacheprovider", "-o", "log_cli=false"]
    left_out = [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in suite.left_out]
    which = list(tests) or [*suite.tests, *left_out]
    command = [str(python()), "-m", "pytest", *how, "-p", "history.engine_adapters", *which]
    log = HOME / f"{suite.engine}-{'kvpool' if adapters else 'own'}.log"
    print(
        f"{suite.engine}: its own tests{' over kvpool' * adapters} (output in {os.path.relpath(log, ROOT)})", flush=True
    )
    with log.open("a" if tests else "w") as output:
        subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
    if not outcomes.is_file():
        # pytest writes errors behind an E.
        said = re.sub("^E +", "", log.read_text(), flags=re.MULTILINE)
        raise UsageError(f"the tests of {suite.engine} came to no end: {asv_calls.explanation(said)}")
    found = json.loads(outcomes.read_text())
    return Outcomes({test: tuple(each) for test, each in found["outcomes"].items()}, found["built"])


def beside() -> int:
    """Run our own tests that need an engine, where the engines are; return 1 if one fails."""
    ours = [str(path.relative_to(ROOT)) for pattern in BESIDE for path in sorted(ROOT.glob(pattern))]
    print(f"\nkvpool's own tests beside the engines: {' '.join(ours)}", flush=True)
    environment = {**os.environ, **SUITES[0].environment}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(HOME / "vllm")))
    command = [str(python()), "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", *ours]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    return int(done.returncode != 0)


def python() -> Path:
    """Return the environment's interpreter."""
    return HOME / "env" / "bin" / "python"
