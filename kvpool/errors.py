"""The error types that kvpool adds to Python's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_PAGES_NAMED = 8


class PagesError(ValueError):
    """What FreeError, TakeError and CountError are: pages that a call cannot have; nothing has changed.

    `faults` maps each reason to the ids of the pages it was found for, in ascending order. The message names the
    first few of them.
    """

    verb = "use"

    def __init__(self, faults: Mapping[str, Sequence[int]]) -> None:
        super().__init__(faults)
        self.faults = {reason: list(page_ids) for reason, page_ids in faults.items()}

    def __str__(self) -> str:
        return f"cannot {self.verb} " + "; ".join(
            f"{name_pages(page_ids)}: {reason}" for reason, page_ids in self.faults.items()
        )


class FreeError(PagesError):
    """Pages were given back that cannot be; nothing has changed."""

    verb = "free"


class TakeError(PagesError):
    """Pages were asked for by their ids that are not to be had; nothing has changed."""

    verb = "take"


class CountError(PagesError):
    """Holders of pages were to be counted that cannot be; nothing has changed."""

    verb = "count"


class TokenRangeError(OverflowError, ValueError):
    """A token that the dtype cannot hold.

    A ValueError, as malformed arguments are throughout kvpool, and the OverflowError that array.array and numpy raise.
    """

    def __init__(self, token: int, dtype: np.dtype[Any]) -> None:
        super().__init__(token, dtype)
        self.token = token
        self.dtype = dtype

    def __str__(self) -> str:
        return f"token {self.token} does not fit {self.dtype}"


def name_pages(page_ids: Sequence[int]) -> str:
    """Return "page 3" or "pages 3, 4 and 7 more"."""
    named = ", ".join(str(page_id) for page_id in page_ids[:_PAGES_NAMED])
    more = len(page_ids) - _PAGES_NAMED
    return f"page{'s' if len(page_ids) > 1 else ''} {named}" + (f" and {more} more" if more > 0 else "")
