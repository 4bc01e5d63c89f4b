"""The decorator of the kernels, where numba finds nowhere to write its cache."""

from typing import Any

import pytest

from kvpool import _kernels


def plus_one(number: int) -> int:
    return number + 1


@pytest.mark.compiled
def test_kernels_are_compiled_without_a_cache_where_there_is_no_place_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = _kernels.njit

    def without_a_place(*arguments: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function 'plus_one': no locator available for file")
        return njit(*arguments, **options)

    monkeypatch.setattr(_kernels, "njit", without_a_place)
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):
        compiled = _kernels.kernel("int64(int64)")(plus_one)
    assert compiled(1) == 2


def test_other_errors_of_the_compiler_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("another reason")

    monkeypatch.setattr(_kernels, "njit", broken)
    with pytest.raises(RuntimeError, match="another reason"):
        _kernels.kernel("int64(int64)")(plus_one)
