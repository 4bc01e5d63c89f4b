"""docs/reference.md names every public type, method and field, and its examples run."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import kvpool

PAGE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()


def section(name: str) -> str:
    """Return what the page says under a type's own heading."""
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference.md has no section on {name}"
    return found[1]


TYPES = [
    name
    for name in kvpool.__all__
    if inspect.isclass(getattr(kvpool, name)) and not name.endswith(("Error", "Snapshot", "Stats"))
]


@pytest.mark.compiled  # As plain Python a type shows what is C's alone.
@pytest.mark.parametrize("name", TYPES)
def test_every_method_and_field_is_on_the_page(name: str) -> None:
    text = section(name)
    public = [each for each in dir(getattr(kvpool, name)) if not each.startswith("_")]
    missing = [each for each in public if not re.search(rf"\b{each}\b", text)]
    assert not missing, f"{name}: {missing}"


@pytest.mark.parametrize("name", kvpool.__all__)
def test_every_public_name_is_on_the_page(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE)


@pytest.mark.parametrize("name", TYPES)
def test_what_a_type_is_built_of_is_on_the_page(name: str) -> None:
    parameters = inspect.signature(getattr(kvpool, name)).parameters
    built = re.search(rf"`{name}\(([^`]*)\)`", section(name))
    assert built
    assert re.findall(r"(\w+)(?==|,|$)", re.sub(r'="?[^,]*', "", built[1])) == list(parameters)


def test_the_examples_run() -> None:
    example = doctest.DocTestParser().get_doctest(PAGE, {}, "reference.md", "docs/reference.md", 0)
    assert len(example.examples) > 10
    output: list[str] = []
    assert doctest.DocTestRunner().run(example, out=output.append).failed == 0, "".join(output)
