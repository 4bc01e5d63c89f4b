"""What the package asks for leaves the engines their pins, and is what it imports."""

import ast
import re
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from history import peers
from history.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {canonicalize_name(each.name): each.specifier for each in map(Requirement, PROJECT["dependencies"])}


def engines() -> dict[str, list[Requirement]]:
    """Return what each engine requires, by its pin."""
    found: dict[str, list[Requirement]] = {}
    for line in peers.REQUIREMENTS.read_text().splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            found[list(found)[-1]].append(Requirement(line))
    return found


ENGINES = engines()


def test_the_requirements_are_those_of_the_engines_that_are_measured() -> None:
    pins = [line for line in peers.PINS.read_text().splitlines() if line.partition("==")[0] in peers.ENGINES]
    assert list(ENGINES) == pins
    assert all(len(requirements) > 10 for requirements in ENGINES.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_keeps_every_version_that_it_asks_for(engine: str) -> None:
    theirs = [each for each in ENGINES[engine] if canonicalize_name(each.name) in OURS]
    assert theirs
    for each in theirs:
        for bound in each.specifier:
            if bound.operator in ("==", "<=", "~=", "==="):
                assert OURS[canonicalize_name(each.name)].contains(bound.version, prereleases=True), (
                    f"{each} of {engine}"
                )


def test_nothing_has_an_upper_bound() -> None:
    for name, specifier in OURS.items():
        assert [bound.operator for bound in specifier] == [">="], name
    assert re.fullmatch(r">=3\.\d+", PROJECT["requires-python"])


def test_nothing_else_is_asked_for() -> None:
    """numba, which every engine pins to another version, least of all."""
    assert OURS.keys() == {"numpy", "torch"}


# What is plain Python only, and what Cython reads while it translates.
NOT_INSTALLED = {"cython", "cpython", "libc"}
NEWER_THAN_310 = {"Self", "LiteralString", "Never", "NotRequired", "Required", "TypeVarTuple", "Unpack", "assert_never"}


def test_what_is_imported_is_asked_for() -> None:
    imported = set()
    for path in [*(ROOT / "kvpool").glob("*.py"), *(ROOT / "kvpool").glob("*.pyx")]:
        imported |= set(re.findall(r"^(?:import|from|cimport) (\w+)", path.read_text(), re.MULTILINE))
    assert imported - sys.stdlib_module_names - NOT_INSTALLED - {"kvpool"} == OURS.keys()


def test_the_sources_are_those_of_the_oldest_python() -> None:
    """No clause and no name of typing that came after it."""
    for path in (ROOT / "kvpool").glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, int(PROJECT["requires-python"].removeprefix(">=3."))))
        imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module == "typing"]
        assert not {alias.name for each in imports for alias in each.names} & NEWER_THAN_310, path.name
