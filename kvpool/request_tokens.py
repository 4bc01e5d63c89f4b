"""A request's prompt and what was generated for it."""

import cython

from kvpool import _signatures
from kvpool._arguments import as_int
from kvpool._signatures import ClassSignature
from kvpool.token_buffer import TokenBuffer

if not cython.compiled:
    from kvpool._plain import small_int


@cython.cclass
class RequestTokens:
    """A request's token ids: the prompt (origin) followed by what was generated (output), in one TokenBuffer.

    The origin is copied; it gives the dtype where it is a TokenBuffer, otherwise tokens are int64. `append` and
    `extend` add to the output, with TokenBuffer's rules for what a token is. What is read are read-only views, never
    copies; they stay valid and unchanged when the request goes on.

    >>> request = RequestTokens([11, 12, 13])
    >>> request.append(21)
    >>> request.fill_ids, request.output
    (array([11, 12, 13, 21]), array([21]))
    >>> request.committed(2)
    array([11, 12])
    """

    __signature__ = ClassSignature(_signatures.request_tokens)

    def __cinit__(self):
        # Whoever forgets to call __init__ has a request of no tokens.
        self.tokens = TokenBuffer()

    def __init__(self, origin):
        tokens = TokenBuffer(origin, origin.dtype) if isinstance(origin, TokenBuffer) else TokenBuffer(origin)
        self._hold(tokens, len(tokens))

    @cython.binding(False)
    @cython.embedsignature(True)
    def append(self, token):
        """Append one generated token. O(1) amortised."""
        self.tokens.append(token)

    def extend(self, tokens):
        """Append generated tokens, all of them or, where one is refused, none. O(k) amortised."""
        self.tokens.extend(tokens)

    @property
    def origin(self):
        """The prompt, a read-only view. O(1)."""
        return self.tokens._view(0, self.origin_length)

    @property
    def output(self):
        """What was generated so far, a read-only view. O(1)."""
        return self.tokens._view(self.origin_length, self.tokens._length)

    @property
    def fill_ids(self):
        """Origin and output, a read-only view. O(1)."""
        return self.tokens._view(0, self.tokens._length)

    def committed(self, length):
        """Return the first `length` of origin and output, a read-only view. O(1).

        A length below 0 or above the number of tokens is a ValueError.
        """
        first: cython.longlong = small_int(length)
        if first < 0 or first > self.tokens._length:
            number = as_int(length, "length")
            if not 0 <= number <= self.tokens._length:
                raise ValueError(f"length must be between 0 and {self.tokens._length}, not {number}")
            first = number
        return self.tokens._view(0, first)

    def __len__(self):
        return self.tokens._length

    def __array__(self, dtype=None, copy=None):
        return self.tokens.__array__(dtype, copy)

    def __reduce__(self):
        return _rebuilt, (type(self), self.tokens, self.origin_length)

    def __copy__(self):
        return _rebuilt(type(self), self.tokens.__copy__(), self.origin_length)

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __setstate__(self, state):
        """Take what pickles of version 0.1 hold."""
        fields = state[1]
        self._hold(fields["_tokens"], fields["_origin_length"])

    def __repr__(self):
        return f"RequestTokens({self.origin_length} of origin, {len(self) - self.origin_length} of output)"

    def _hold(self, tokens, origin_length):
        """Take a buffer for the request's own."""
        if not isinstance(tokens, TokenBuffer) or not 0 <= origin_length <= len(tokens):
            raise ValueError(f"a request of {origin_length} tokens of origin cannot hold {tokens!r}")
        self.tokens = tokens
        self.origin_length = origin_length


def _rebuilt(kind, tokens, origin_length):
    """Build a request over a buffer that nobody else has: what pickle and copy make of one."""
    request = kind.__new__(kind)
    request._hold(tokens, origin_length)
    return request
