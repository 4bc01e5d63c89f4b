"""Write the pickles in this folder; run with the last kvpool that was compiled by numba (commit 0f2a794).

``python tests/data/numba_pickles/make.py`` beside such a package. tests/test_old_pickles.py says what they hold.
"""

import pickle
from pathlib import Path

import numpy as np

from kvpool import HostAllocator, OwnerLaneAllocator, RequestTokens, TokenBuffer, TokenTable


def main() -> None:
    """Pickle one of each at protocols 2 and 5."""
    grown = TokenBuffer(range(10), np.int32)
    for token in range(10, 20):
        grown.append(token)
    request = RequestTokens([1, 2, 3])
    request.extend([4, 5])
    table = TokenTable(3, 5)
    for tokens in ([1, 2], [3], [4, 5, 6]):
        table.add(tokens)
    table.remove(1)
    host = HostAllocator(8, 2)
    host.free(host.alloc(10)[4:8])
    lanes = OwnerLaneAllocator(4, 2, 2)
    taken = lanes.alloc_pages_with_owners([0, 1, 1, 0])
    lanes.free(taken[2:6])
    for name, held in {
        "token_buffer_int64": TokenBuffer([1, -2, 2**62]),
        "token_buffer_int32": TokenBuffer([1, -2, 3], np.int32),
        "token_buffer_grown": grown,
        "request_tokens": request,
        "token_table": table,
        "host_allocator": host,
        "host_snapshot": host.snapshot(),
        "owner_lane_allocator": lanes,
        "lane_snapshot": lanes.snapshot(),
    }.items():
        for protocol in (2, 5):
            path = Path(__file__).parent / f"{name}.{protocol}.pickle"
            path.write_bytes(pickle.dumps(held, protocol))


if __name__ == "__main__":
    main()
