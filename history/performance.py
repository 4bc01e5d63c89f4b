"""The page that shows kvpool beside the engines: docs/performance.md and its plots, from one recorded run.

`record` measures and writes docs/performance.json; `write` makes the page of it. What the page says is decided by the
figures, who wins included; only the reasons are written by hand.
"""

import json
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from history import UsageError, asv_calls, commits, peers, records
from history.paths import ROOT, SCRATCH
from history.plot import Series, plot
from history.templating import render

PAGE = ROOT / "docs" / "performance.md"
RECORDED = ROOT / "docs" / "performance.json"
PLOTS = ROOT / "docs" / "performance"

BENCHMARKS = ["^bench_canary", "^bench_peers", "^bench_size", r"^bench_host\.Growth"]
STAGE_ARGUMENTS = ["--prompt-tokens", "10000", "--containers", "list,array,kvpool,sglang,vllm", "--repeat", "100"]
# What a trace of sessions is replayed against: it has a hundred times the blocks of another.
SESSION_ALLOCATORS = "kvpool_fifo,kvpool_contiguous,kvpool_fewest_runs,kvpool_pages,vllm,lmcache_batched"
PAGES = (1, 8, 64, 512)


class Allocator(NamedTuple):
    """How the page calls an allocator, and what a result of it is."""

    label: str
    returns: str
    kind: str = "peer"


ALLOCATORS = {
    "kvpool_fifo": Allocator("kvpool", "slots, a tensor of its own", "own"),
    "kvpool_contiguous": Allocator("kvpool, contiguous", "slots, a tensor of its own", "own"),
    "kvpool_fewest_runs": Allocator("kvpool, fewest runs", "slots, a tensor of its own", "own"),
    "kvpool_pages": Allocator("kvpool, page ids", "page ids, an array of its own", "own"),
    "sglang": Allocator("SGLang HostKVCache", "slots, a view of its free list"),
    "sglang_paged": Allocator("SGLang paged", "slots, a tensor of its own"),
    "vllm": Allocator("vLLM BlockPool", "a list of block objects that exist already"),
    "vllm_queue": Allocator("vLLM free queue", "a list of block objects that exist already"),
    "lmcache": Allocator("LMCache addresses", "one address range, or a refusal"),
    "lmcache_batched": Allocator("LMCache address ranges", "a list of address ranges"),
    "lmcache_paged": Allocator("LMCache paged", "a list of memory objects that exist already"),
    "floor": Allocator("floor, slots", "as many slots, in the cheapest way", "floor"),
    "floor_pages": Allocator("floor, page ids", "as many page ids, in the cheapest way", "floor"),
}
# What kvpool is compared with like for like, and by which of its methods.
LIKE_FOR_LIKE = {
    "kvpool_fifo": ("sglang", "sglang_paged"),
    "kvpool_pages": ("vllm", "vllm_queue", "lmcache", "lmcache_paged"),
}
# Why another is faster, or holds less, wherever it is.
REASONS = {
    "sglang": "its result is a view of the free list; nothing is written",
    "sglang_paged": "it keeps ids alone, frees every 64th slot unread, and can notice no wrong free",
    "vllm": "its blocks are objects that exist already: a list of one or a few of them is cheaper than any new array",
    "vllm_queue": "it relinks objects that exist already, counts and checks nothing, and makes no result but a list",
    "lmcache": "a result is two numbers, the books one entry a free range; it refuses what no range holds",
    "lmcache_paged": "its objects exist already: a few of them in a list are cheaper than any new array",
    "lmcache_batched": "a block is one range to it, two numbers, where kvpool reads and writes each slot or page",
}

Figures = Mapping[str, Mapping[tuple[str, ...], float]]


def record(traces: Sequence[Path]) -> None:
    """Measure the last change to kvpool/ beside the engines, and replay the traces; write docs/performance.json.

    The traces are files that the user names; a synthetic one is replayed where there is none.
    """
    head = commits.last_changes("kvpool/", 1)[0]
    if subprocess.run(["git", "diff", "--quiet", head, "--", "kvpool"], cwd=ROOT, check=False).returncode:
        raise UsageError("kvpool/ has changes that are not committed, and the page names a commit")
    conf = peers.configuration()
    if asv_calls.run(conf, [head], bench=BENCHMARKS):
        raise UsageError("not everything could be measured; see above")
    found = next(each for each in records.load(Path(conf.results_dir)) if each.commit == head)
    versions = json.loads(_printed("-c", _VERSIONS))
    document = {
        "commit": head[:8],
        "date": time.strftime("%Y-%m-%d"),
        "machine": _machine(Path(conf.results_dir) / found.machine),
        "versions": {"python": found.python, **versions},
        "figures": _by_benchmark(found.figures),
        "stages": _swept("tokens", *STAGE_ARGUMENTS)["stages"],
        "replays": [_replayed(trace) for trace in traces] or [_replayed(None)],
    }
    RECORDED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def write() -> None:
    """Write docs/performance.md and its plots from docs/performance.json."""
    if not RECORDED.is_file():
        raise UsageError("nothing is recorded in docs/performance.json: name traces with --record to measure")
    PLOTS.mkdir(exist_ok=True)
    for path, text in pages(json.loads(RECORDED.read_text(encoding="utf-8"))).items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


def pages(document: Mapping[str, Any]) -> dict[Path, str]:
    """Return what a recorded run becomes: the text of each file."""
    figures = _figures(document["figures"])
    alloc = by_size(figures["bench_peers.PeerChurnedAlloc.time_alloc"])
    fresh = by_size(figures["bench_peers.PeerFreshAlloc.time_alloc"])
    free = by_size(figures["bench_peers.PeerFree.time_free"])
    match = by_size(figures["bench_peers.PeerPrefixMatch.time_match"])
    appends = {key[0]: value * 1e6 for key, value in _plain(figures, "PeerAppend").items()}
    books = {key[0]: value for key, value in _plain(figures, "PeerBooks").items()}
    retained = {key[0]: value for key, value in _plain(figures, "PeerRetention").items()}
    growth = _growth(figures)
    threads, lanes = (
        {int(key[0]): value * 1e6 for key, value in figures[f"bench_size.{name}.time_alloc_free"].items()}
        for name in ("SharedPool", "Lanes")
    )
    plots = {
        "alloc": plot(
            "Allocation on a churned pool, 90 % full", "pages of a request", "µs a call", _allocator_series(alloc)
        ),
        "free": plot("Free on the same pool", "pages of a call", "µs a call", _allocator_series(free)),
        "match": plot("Common prefix of equal sequences", "tokens", "µs a call", _match_series(match)),
        "growth": plot("Allocation and free, by the size of the pool", "pages of the pool", "µs a pair", growth),
        "threads": plot(
            "20,000 allocations and frees of 8 pages, dealt to threads",
            "threads that share a pool",
            "µs of CPU a pair",
            [Series("kvpool", sorted(threads.items()), "own")],
        ),
        "lanes": plot(
            "Allocation and free of 512 pages by owner",
            "lanes of a pool of 262,144 pages",
            "µs a pair",
            [Series("kvpool", sorted(lanes.items()), "own")],
        ),
    }
    text = render(
        "performance.md",
        document=document,
        allocators=ALLOCATORS,
        pages=PAGES,
        alloc=alloc,
        fresh=fresh,
        free=free,
        like_for_like=LIKE_FOR_LIKE,
        verdict=verdict,
        us=us,
        match=match,
        match_tokens=sorted({tokens for tokens, _ in match}),
        appends=appends,
        books=books,
        retained=retained,
        stages=_stage_rows(document["stages"]),
        growth=growth,
        threads=threads,
        lanes=lanes,
        lost=lost(alloc, free, match, appends, books, retained, document["replays"]),
    )
    return {PAGE: text} | {PLOTS / f"{name}.svg": svg for name, svg in plots.items()}


def by_size(figures: Mapping[tuple[str, ...], float]) -> dict[tuple[int, str], float]:
    """Return microseconds, by size and by what was called."""
    return {(int(size), name): value * 1e6 for (size, name), value in figures.items()}


def us(value: float | None) -> str:
    """Return microseconds with three figures.

    >>> us(0.12345), us(12.345), us(1234.5), us(None)
    ('0.123', '12.3', '1,230', 'n/a')
    """
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if value >= 1_000 and float(f"{value:.3g}") == value else f"{float(f'{value:.3g}'):,g}"


def verdict(ours: float | None, theirs: float | None) -> str:
    """Say who is faster, and by what factor.

    >>> verdict(1, 4.04), verdict(3, 1.5), verdict(1, 1.01), verdict(1, None)
    ('kvpool 4.0x', 'peer 2.0x', 'even', 'n/a')
    """
    if ours is None or theirs is None:
        return "n/a"
    ratio = theirs / ours
    if 1 / EVEN < ratio < EVEN:
        return "even"
    return f"kvpool {ratio:.1f}x" if ratio > 1 else f"peer {1 / ratio:.1f}x"


EVEN = 1.05


class Lost(NamedTuple):
    """A comparison that kvpool does not win: with whom, of what, and why."""

    peer: str
    cases: list[str]
    why: str


def lost(alloc, free, match, appends, books, retained, replays) -> list[Lost]:
    """Return where another is faster or holds less, with the reason."""
    cases: dict[str, list[str]] = {}

    def compare(peer: str, what: str, ours: float | None, theirs: float | None, unit: str = "µs") -> None:
        if ours is not None and theirs is not None and ours > theirs * EVEN:
            cases.setdefault(peer, []).append(f"{what}: {us(ours)} beside {us(theirs)} {unit}")

    for own, others in LIKE_FOR_LIKE.items():
        for peer in others:
            for name, figures in (("allocating", alloc), ("freeing", free)):
                for size in PAGES:
                    what = f"{name} {size} page{'s' if size > 1 else ''}"
                    compare(peer, what, figures.get((size, own)), figures.get((size, peer)))
            compare(peer, "books", books.get(own, books["kvpool_fifo"]), books.get(peer), "bytes a page")
            compare(peer, "1,000 kept results of a page", retained.get(own), retained.get(peer), "bytes")
    for tokens in sorted({tokens for tokens, _ in match}):
        compare("sglang", f"matching {tokens:,} tokens", match[tokens, "kvpool_int64"], match.get((tokens, "sglang")))
    compare("vllm", "appending a decoded token", appends["kvpool_request"], appends.get("vllm"))
    for replayed in replays:
        by_name = {line["allocator"]: line for line in replayed}
        for own, others in LIKE_FOR_LIKE.items():
            for peer in (*others, "lmcache_batched"):
                if own in by_name and peer in by_name:
                    ours, theirs = (by_name[name]["alloc_ms"] + by_name[name]["free_ms"] for name in (own, peer))
                    compare(peer, f"replaying {by_name[own]['trace']}", ours, theirs, "ms for 1,000 requests")
    return [Lost(ALLOCATORS[peer].label, found, REASONS[peer]) for peer, found in cases.items()]


def _allocator_series(figures: Mapping[tuple[int, str], float]) -> list[Series]:
    return [
        Series(what.label, [(size, figures[size, name]) for size in PAGES if (size, name) in figures], what.kind)
        for name, what in ALLOCATORS.items()
    ]


def _match_series(figures: Mapping[tuple[int, str], float]) -> list[Series]:
    labels = {
        "kvpool_int64": ("kvpool, int64", "own"),
        "kvpool_int32": ("kvpool, int32", "own"),
        "sglang": ("SGLang RadixKey.match", "peer"),
        "floor": ("comparing bytes", "floor"),
    }
    return [
        Series(label, sorted((tokens, value) for (tokens, each), value in figures.items() if each == name), kind)
        for name, (label, kind) in labels.items()
    ]


def _growth(figures: Figures) -> list[Series]:
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name in ("bench_host.Growth.time_alloc_free", "bench_size.HugePool.time_alloc_free"):
        for (num_pages, size, method), value in figures[name].items():
            if method != "floor":
                points.setdefault((method, size), []).append((int(num_pages), value * 1e6))
    return [
        Series(f"{method.replace('_', ' ')}, {size} pages", sorted(found), "own")
        for (method, size), found in points.items()
    ]


def _stage_rows(found: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    for each in found:
        rows.setdefault(each["stage"], {})[each["container"]] = each["p50"]
    total: dict[str, float] = {}
    for row in rows.values():
        for container, value in row.items():
            total[container] = total.get(container, 0.0) + value
    return rows | {"total": total}


def _figures(recorded: Mapping[str, Iterable[Sequence[Any]]]) -> dict[str, dict[tuple[str, ...], float]]:
    return {name: {tuple(parameters): value for parameters, value in found} for name, found in recorded.items()}


def _plain(figures: Figures, name: str) -> Mapping[tuple[str, ...], float]:
    return next(found for full, found in figures.items() if full.startswith(f"bench_peers.{name}."))


def _machine(folder: Path) -> dict[str, Any]:
    recorded = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    return {key: recorded[key] for key in ("os", "arch", "cpu", "num_cpu", "ram")}


def _by_benchmark(figures: Mapping[records.Case, float]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for case, value in figures.items():
        parameters = [each.strip("'") for each in case.parameters]
        found.setdefault(case.benchmark, []).append([parameters, float(f"{value:.4g}")])
    return found


def _replayed(trace: Path | None) -> list[dict[str, Any]]:
    arguments = ["--allocators", SESSION_ALLOCATORS] if _has_sessions(trace) else []
    return _swept("replay", *([str(trace)] if trace else []), *arguments)["records"]


def _has_sessions(trace: Path | None) -> bool:
    if trace is None:
        return False
    from benchmarks.traces import SessionTrace, TraceError, read_trace

    try:
        return isinstance(read_trace(trace)[0], SessionTrace)
    except TraceError as error:
        raise UsageError(str(error)) from error


def _swept(command: str, *arguments: str) -> dict[str, Any]:
    output = SCRATCH / "peers" / f"{command}.json"
    if peers.run("benchmarks", [command, *arguments, "--json-output", str(output)]):
        raise UsageError(f"python -m benchmarks {command} failed; see above")
    return json.loads(output.read_text(encoding="utf-8"))


def _printed(*arguments: str) -> str:
    return subprocess.run(
        [peers.python(), *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]


_VERSIONS = """
import importlib.metadata, json
names = ("torch", "numpy", "numba", "sglang", "vllm", "lmcache")
print(json.dumps({name: importlib.metadata.version(name) for name in names}))
"""
