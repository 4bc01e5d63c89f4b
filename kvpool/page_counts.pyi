"""Reference counts of pages: who hands pages to several requests knows by them when nobody holds a page any more."""

from typing import Any

from kvpool._arguments import Int64Array, Integers
from kvpool.snapshots import PageCountsSnapshot

class PageCounts:
    """How many holders each of `num_pages` pages has; page ids run from 0 to `num_pages - 1`, all counts begin at 0."""

    def __init__(self, num_pages: int) -> None: ...
    @property
    def num_pages(self) -> int: ...
    @property
    def num_held(self) -> int: ...
    def retain(self, page_ids: Integers) -> int:
        """Add a holder to each page; return how many ids were given. CountError for a wrong one. O(n)."""

    def release(self, page_ids: Integers) -> Int64Array:
        """Take a holder from each page; return the ids whose count fell to 0, in the order given. O(n)."""

    def count(self, page_id: int) -> int:
        """Return how many holders a page has. A page that is out of range is a CountError."""

    def held_page_ids(self) -> Int64Array:
        """Return the ids of the pages that have a holder, ascending: a fresh int64 ndarray. O(N)."""

    def snapshot(self) -> PageCountsSnapshot:
        """Return an immutable snapshot of the counts, equal by content to another of the same counts. O(N)."""

    def restore(self, snapshot: PageCountsSnapshot) -> None:
        """Bring the counts back to those of a snapshot. O(N)."""

    def clear(self) -> None:
        """Make all counts 0. O(N)."""

    def check(self) -> None:
        """Assert that as many pages are held as is said. O(N)."""

    def __reduce__(self) -> tuple[Any, ...]: ...
