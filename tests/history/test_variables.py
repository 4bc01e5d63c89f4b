"""What the processes that are built and measured inherit."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from history import command_line, lock, variables
from history.__main__ import main
from history.compare import sides
from history.status import Status

CHANGES_THE_FIGURE = [
    "NUMBA_DISABLE_JIT",
    "NUMBA_CPU_NAME",
    "KVPOOL_CPU",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MALLOC_ARENA_MAX",
    "MALLOC_PERTURB_",
    "GLIBC_TUNABLES",
    "PYTHONMALLOC",
    "PYTHONPATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONPROFILEIMPORTTIME",
    "LD_PRELOAD",
    "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES",
    "TORCH_LOGS",
    "ATEN_CPU_CAPABILITY",
    "CUDA_LAUNCH_BLOCKING",
    "ASV_PYTHONPATH",
    "CFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "PIP_CONFIG_SETTINGS",
    "GIT_DIR",
    "a_variable_that_nobody_knows",
]
IS_NEEDED = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LC_ALL",
    "CC",
    "LDSHARED",
    "ZIG_LOCAL_CACHE_DIR",
    "http_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "SSL_CERT_FILE",
    "npm_config_registry",
    "GIT_CONFIG_COUNT",
    "CUDA_VISIBLE_DEVICES",
]


@pytest.mark.parametrize("name", CHANGES_THE_FIGURE)
def test_what_changes_a_figure_is_not_passed_on(name):
    assert variables.passed_on({name: "1"}) == {}


@pytest.mark.parametrize("name", IS_NEEDED)
def test_what_building_and_installing_needs_is_passed_on(name):
    assert variables.passed_on({name: "1"}) == {name: "1"}


def test_of_the_folders_of_libraries_the_interpreter_s_own_is_left(monkeypatch, tmp_path):
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: str(tmp_path))
    assert variables.passed_on({"LD_LIBRARY_PATH": f"/other:{tmp_path}/:"}) == {"LD_LIBRARY_PATH": str(tmp_path)}
    assert variables.passed_on({"LD_LIBRARY_PATH": "/other"}) == {}
    assert variables.passed_on({}) == {}


def test_a_command_and_all_that_it_starts_see_no_others(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "PATH", tmp_path / "lock")
    for name in CHANGES_THE_FIGURE:
        monkeypatch.setenv(name, "")
    seen = []

    def start(arguments):
        ask = [sys.executable, "-c", "import os; print(*os.environ)"]
        seen.append(subprocess.check_output(ask, text=True).split())

    monkeypatch.setattr(command_line, "_bench", start)
    assert main(["bench"]) is Status.PASSED
    assert not set(CHANGES_THE_FIGURE) & set(seen[0])
    assert "PATH" in seen[0]
    assert set(CHANGES_THE_FIGURE) <= set(os.environ)


def test_a_commit_built_by_another_compiler_is_another_side(monkeypatch):
    shared = SimpleNamespace(dir_name="0123")

    def home():
        return sides._own_environment(shared, "a" * 40)._path

    monkeypatch.delenv("CC", raising=False)
    first = home()
    assert home() == first
    monkeypatch.setenv("CC", "clang")
    assert home() != first
