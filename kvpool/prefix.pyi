"""How far two token sequences agree."""

from kvpool._types import Tokens

def match_prefix(a: Tokens, b: Tokens, page_size: int = 1, *, start: int = 0, limit: int | None = None) -> int:
    """Return the length of the common prefix of two token sequences, rounded down to whole pages."""
