"""KV-cache bookkeeping of LLM serving engines: page allocators and token containers."""

from kvpool.errors import CountError, FreeError, TakeError
from kvpool.host import HostAllocator
from kvpool.lanes import OwnerLaneAllocator
from kvpool.page_counts import PageCounts
from kvpool.paged import PagedAllocator
from kvpool.prefix import match_prefix
from kvpool.request_tokens import RequestTokens
from kvpool.runs import count_runs, page_runs
from kvpool.snapshots import HostSnapshot, HostStats, LaneSnapshot, PageCountsSnapshot, PagedSnapshot
from kvpool.staging import BatchStager
from kvpool.token_buffer import TokenBuffer
from kvpool.token_table import TokenTable

__all__ = [
    "BatchStager",
    "CountError",
    "FreeError",
    "HostAllocator",
    "HostSnapshot",
    "HostStats",
    "LaneSnapshot",
    "OwnerLaneAllocator",
    "PageCounts",
    "PageCountsSnapshot",
    "PagedAllocator",
    "PagedSnapshot",
    "RequestTokens",
    "TakeError",
    "TokenBuffer",
    "TokenTable",
    "count_runs",
    "match_prefix",
    "page_runs",
]
