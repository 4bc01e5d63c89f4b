"""Each folder knows its room: the tests are packages, and a path that a file names is there."""

import re

import pytest

from tests.copied import ROOT

NAMING = (
    "Makefile",
    "README.md",
    "pyproject.toml",
    "MANIFEST.in",
    "docs/*.md",
    ".github/workflows/*.yml",
    "benchmarks/*.py",
    "history/peers.py",
    "history/engine_tests.py",
)
#: Files of a folder of ours, and modules that are run. An engine's own tests are in tests/v1.
NAMED = re.compile(r"(?<![\w./-])((?:tests(?!/v1)|benchmarks|history|kvpool)/[\w./*]*[\w*])|-m (tests\.[\w.]*\w)")


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
