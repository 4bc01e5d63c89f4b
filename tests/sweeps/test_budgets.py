"""The budgets' command: what it prints and how it ends; what it measures is not timed in a test."""

import types
from typing import Any

import pytest

from sweeps import budgets, budgets_allocators
from sweeps.budgets import Line


def family(monkeypatch: pytest.MonkeyPatch, measured: list[float]) -> list[float]:
    """Make the allocators' family one budget of 2, measured as these figures one after the other."""
    left = list(measured)
    module = types.SimpleNamespace(measurements=lambda: [lambda: [Line("an operation", left.pop(0), 2, "x floor")]])
    monkeypatch.setattr(budgets.importlib, "import_module", lambda _: module)
    return left


@pytest.mark.parametrize(
    ("measured", "status", "printed"),
    [([1.9], 0, "ok"), ([2.0], 0, "ok"), ([2.1, 2.2, 1.5], 0, "ok"), ([2.1, 2.2, 2.3], 1, "MISSED")],
)
def test_a_missed_budget_is_measured_again_and_then_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, measured: list[float], status: int, printed: str
) -> None:
    left = family(monkeypatch, measured)
    assert budgets.main(["allocators"]) == status
    assert not left
    line = capsys.readouterr().out.splitlines()[0]
    assert line.endswith(printed)
    assert f"{measured[-1]:.3f}" in line


def test_an_unknown_family_is_refused(capsys: Any) -> None:
    assert budgets.main(["allocator"]) == 2
    assert "write allocators" in capsys.readouterr().err


def test_every_row_of_the_design_is_measured() -> None:
    names = [
        getattr(each, "func", each).__name__ + str(getattr(each, "args", ""))
        for each in budgets_allocators.measurements()
    ]
    for method in ("alloc", "alloc_contiguous_preferred", "alloc_fewest_runs"):
        for pages in (1, 8, 64, 512):
            assert f"alloc_lines('{method}', {pages})" in names
    for expected in (
        "free_lines(512,)",
        "pages_lines(1,)",
        "isolated_head_lines(8,)",
        "growth_lines(64,)",
        "lane_lines",
    ):
        assert expected in names


def test_the_isolated_head_stays_where_it_is() -> None:
    churn = budgets_allocators.IsolatedHead(budgets_allocators.POOL)
    churn.age(300)
    churn.check()
    churn.pool.check()
    assert 0.88 < 1 - churn.pool.available_size() / churn.pool.size < 0.97
