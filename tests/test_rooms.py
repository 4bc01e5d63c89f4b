"""Each folder knows its room: what it may import, that tests are packages, and that a file which is named is there."""

import ast
import re
from pathlib import Path

import pytest

from tests.copied import ROOT

#: What each may import of ours, beside itself. asv has `benchmarks` and an installed kvpool, and nothing else.
IMPORTS = {
    "kvpool": (),
    "oracle.py": (),
    "benchmarks": ("kvpool",),
    "sweeps": ("kvpool", "benchmarks", "oracle"),
    "history": ("benchmarks",),
    "tests/kvpool": ("kvpool", "oracle", "tests"),
}
OURS = {"kvpool", "oracle", "benchmarks", "sweeps", "history", "tests"}
NAMING = (
    "Makefile",
    "asv*.json",
    "README.md",
    "pyproject.toml",
    "MANIFEST.in",
    "docs/*.md",
    ".github/workflows/*.yml",
    "benchmarks/*.py",
    "sweeps/*.py",
    "history/peers.py",
    "history/engine_tests.py",
)
#: Files of a folder of ours, and modules that are run. An engine's own tests are in tests/v1.
NAMED = re.compile(
    r"(?<![\w./-])((?:tests(?!/v1)|benchmarks|history|kvpool|sweeps)/[\w./*]*[\w*])|-m (tests\.[\w.]*\w)"
)


def test_every_folder_of_tests_is_a_package() -> None:
    """Otherwise pytest imports from it, and tests/kvpool stands where kvpool is."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


@pytest.mark.parametrize("pattern", NAMING)
def test_the_files_that_are_named_are_there(pattern: str) -> None:
    files = sorted(ROOT.glob(pattern))
    assert files
    for file in files:
        for path, module in NAMED.findall(file.read_text()):
            named = path or module.replace(".", "/") + ".py"
            assert any(ROOT.glob(named)), f"{file.relative_to(ROOT)} names {named}"


def imported(file: Path) -> set[str]:
    """Return the packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
    return {name.partition(".")[0] for name in found}


@pytest.mark.parametrize("room", IMPORTS)
def test_nothing_is_imported_from_a_room_above(room: str) -> None:
    files = [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py"))
    assert files
    allowed = {room.partition("/")[0].removesuffix(".py"), *IMPORTS[room]}
    wrong = {str(file.relative_to(ROOT)): imported(file) & OURS - allowed for file in files}
    assert not {file: names for file, names in wrong.items() if names}
