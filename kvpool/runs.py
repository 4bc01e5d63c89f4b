"""Runs of consecutive pages: how many transfers an allocation costs, and which."""

import numpy as np

from kvpool._arguments import INT64_MAX, Int64Array, Integers, as_int64, positive_int


def page_runs(page_ids: Integers) -> tuple[Int64Array, Int64Array]:
    """Return the transfer descriptors of pages in the order given: (starts, lengths), two fresh int64 ndarrays.

    A run ends where a page is not its predecessor plus one. A negative id is a ValueError. O(n).

    >>> starts, lengths = page_runs([4, 5, 6, 2, 3])
    >>> starts.tolist(), lengths.tolist()
    ([4, 2], [3, 2])
    """
    pages = as_int64(page_ids, "page_ids")
    if pages.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if (lowest := pages.min()) < 0:
        raise ValueError(f"page_ids must not be negative, but include {lowest}")
    first = np.concatenate(([0], np.flatnonzero(np.diff(pages) != 1) + 1))
    return pages[first], np.diff(np.append(first, pages.size))


def count_runs(slots: Integers, page_size: int) -> int:
    """Return in how many runs an allocation lies, in the order given; 0 for nothing. O(n).

    Raises ValueError for slots that are not whole pages, each page's slots ascending from its first.

    >>> count_runs([8, 9, 10, 11, 2, 3], page_size=2)
    2
    """
    size = positive_int(page_size, "page_size")
    array = as_int64(slots, "slots")
    if array.size == 0:
        return 0
    if array.size % size:
        raise ValueError(f"{array.size} slots are not whole pages of {size}")
    pages = array.reshape(-1, size)
    # Beyond the last of int64 the slots of a page would begin anew.
    if (
        np.any(pages[:, 0] < 0)
        or np.any(pages[:, 0] > INT64_MAX - (size - 1))
        or np.any(pages[:, 0] % size)
        or np.any(pages != pages[:, :1] + np.arange(size))
    ):
        raise ValueError(f"slots are not whole pages of {size}, each from its first slot to its last")
    return len(page_runs(pages[:, 0] // size)[0])
