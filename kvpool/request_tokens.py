"""A request's prompt and what was generated for it."""

import cython
import numpy as np

from kvpool import _signatures
from kvpool._arguments import as_int
from kvpool._python_types import attributes_of
from kvpool._signatures import ClassSignature

if not cython.compiled:
    from kvpool._plain import small_int
    from kvpool._plain_tokens import with_cinit
from kvpool.token_buffer import TokenBuffer


@cython.no_gc
@cython.cclass
class RequestTokens:
    """A request's token ids: the prompt (origin) followed by what was generated (output), in one TokenBuffer.

    Output:     `append`, `extend`, `truncate`
    No copies:  `origin`, `output`, `fill_ids`, `committed`
    Copies:     `tolist`

    The origin is copied; it gives the dtype where it is a TokenBuffer, otherwise tokens are int64. TokenBuffer's rules
    for what a token is hold here too. Views cannot be written to, and stay valid and unchanged whatever becomes of the
    request. Every method is atomic, as a TokenBuffer's are.

    >>> request = RequestTokens([11, 12, 13])
    >>> request.append(21)
    >>> request.fill_ids, request.output
    (array([11, 12, 13, 21]), array([21]))
    >>> request.committed(2)
    array([11, 12])
    """

    __signature__ = ClassSignature(_signatures.request_tokens)

    def __cinit__(self):
        self._hold(TokenBuffer(), 0)

    def __init__(self, origin):
        dtype = origin.dtype if isinstance(origin, TokenBuffer) else np.int64
        tokens: TokenBuffer = TokenBuffer(origin, dtype)
        self._hold(tokens, tokens.length)

    def append(self, token):
        """Append one generated token. O(1) amortised."""
        self.tokens.append(token)

    def extend(self, tokens):
        """Append generated tokens, all of them or, where one is refused, none. O(k) amortised."""
        self.tokens.extend(tokens)

    def truncate(self, n):
        """Keep the first n tokens of origin and output. O(1); where there are views, the next token takes O(n).

        An n below the origin's length or above the number of tokens is a ValueError. Views stay as they are.
        """
        length: cython.longlong = small_int(n)
        if not self.origin_length <= length <= self.tokens.length:
            number = as_int(n, "n")
            if not self.origin_length <= number <= self.tokens.length:
                raise ValueError(
                    f"n must be between {self.origin_length}, which the origin has, and {self.tokens.length}, "
                    f"not {number}"
                )
            length = number
        self.tokens.shorten(length)

    @property
    def origin(self):
        """The prompt, a read-only view. O(1)."""
        return self.tokens.view(0, self.origin_length)

    @property
    def output(self):
        """What was generated so far, a read-only view. O(1)."""
        return self.tokens.view(self.origin_length, self.tokens.length)

    @property
    def fill_ids(self):
        """Origin and output, a read-only view. O(1)."""
        return self.tokens.view(0, self.tokens.length)

    def committed(self, length):
        """Return the first `length` of origin and output, a read-only view. O(1).

        A length below 0 or above the number of tokens is a ValueError.
        """
        stop: cython.longlong = small_int(length)
        if not 0 <= stop <= self.tokens.length:
            number = as_int(length, "length")
            if not 0 <= number <= self.tokens.length:
                raise ValueError(f"length must be between 0 and {self.tokens.length}, not {number}")
            stop = number
        return self.tokens.view(0, stop)

    def tolist(self, start=0, stop=None):
        """Return origin and output from `start` to `stop` as a new list of Python ints. O(k) for k of them.

        Bounds are those of a slice, as in `TokenBuffer.tolist`.
        """
        return self.tokens.ints(start, stop)

    def __len__(self):
        return self.tokens.length

    def __array__(self, dtype=None, copy=None):
        return self.tokens.__array__(dtype, copy)

    def __repr__(self):
        tokens = self.tokens.length
        return f"RequestTokens({self.origin_length} of origin, {tokens - self.origin_length} of output)"

    def __reduce__(self):
        return _rebuilt, (type(self), self.fill_ids, self.origin_length), attributes_of(self, "tokens", "origin_length")

    def __setstate__(self, state):
        # What no extension type pickled has the request in it, by the names of that time.
        held = {}
        for part in state if isinstance(state, tuple) else (state,):
            held.update(part or {})
        if "_tokens" in held:
            self._hold(held.pop("_tokens"), held.pop("_origin_length"))
        for name, value in held.items():
            setattr(self, name, value)

    def _hold(self, tokens, origin_length):
        if not 0 <= origin_length <= tokens.length:
            raise ValueError(f"the origin has {origin_length} of {tokens.length} tokens")
        # The old ones are let go of last, as that may run code.
        before: object = self.tokens  # noqa: F841
        self.tokens = tokens
        self.origin_length = origin_length
        return 0


def _rebuilt(kind, values, origin_length):
    """Build a request of its tokens: what pickle and copy make of one."""
    request: RequestTokens = kind.__new__(kind)
    request._hold(TokenBuffer._over(values), origin_length)
    return request


if not cython.compiled:
    with_cinit(RequestTokens, "tokens")
