"""The examples in the docstrings run as they stand, those of compiled types as well."""

import doctest

import numpy as np
import pytest

import kvpool

FLAGS = doctest.NORMALIZE_WHITESPACE


def examples(name: str) -> list[doctest.DocTest]:
    names = {public: getattr(kvpool, public) for public in kvpool.__all__} | {"np": np}
    # Without a module, so that a compiled method is not taken for somebody else's.
    found = doctest.DocTestFinder(exclude_empty=True).find(names[name], name, module=False, globs=names)
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", kvpool.__all__)
def test_examples_are_right(name: str) -> None:
    for test in examples(name):
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        output: list[str] = []
        assert runner.run(test, out=output.append).failed == 0, "".join(output)


def test_every_type_and_function_has_an_example() -> None:
    without = {name for name in kvpool.__all__ if not examples(name)}
    assert without == {
        "CountError",
        "FreeError",
        "HostSnapshot",
        "HostStats",
        "LaneSnapshot",
        "PageCountsSnapshot",
        "PagedSnapshot",
        "TakeError",
    }
