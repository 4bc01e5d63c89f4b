"""`python -m benchmarks allocators`: the allocators' cases of the suite at any size, one line a case.

A sample is one call, on a pool that has been brought to the same state before each: building it and dropping the result
before are left out.
"""

import functools
import itertools
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import pools, workloads
from benchmarks.common import floor
from sweeps import implementations
from sweeps.common import (
    Parser,
    Progress,
    add_device,
    index,
    names,
    output_file,
    positive_float,
    positive_floats,
    positive_int,
    positive_ints,
    summary,
    torch_device,
    write_json,
)

BENCHES = ("host", "l1")
HOST_METHODS = (*pools.HOST_METHODS, "floor")
DEFAULT_HOST_PAGES = (8_192, 16_384, 32_768)
L1_OPS = ("stats", "free_room_stats", "select_only", "alloc_pages", "free")
STATISTICS = ("mean", "p50", "p95", "p99", "min", "max")


@dataclass(frozen=True)
class Case:
    """What one line measures; `selection` and `owners` are empty for the host tier, `pages` is of one lane for l1."""

    bench: str
    method: str
    selection: str
    pattern: str
    owners: str
    device: str
    pages: int
    request: int
    page_size: int

    def __str__(self) -> str:
        how = " ".join(filter(None, (self.method, self.selection, self.pattern, self.owners)))
        return f"{self.bench} {how}, {self.pages} pages, request {self.request}"


class Prepared(NamedTuple):
    """A case ready to be measured.

    `prepare` brings the pool to its state and returns the argument of `call`; `contiguous` says of that argument and
    the result whether the pages lie in one run, and is None where there are none.
    """

    prepare: Callable[[], Any]
    call: Callable[[Any], Any]
    contiguous: Callable[[Any, Any], bool] | None


class Column(NamedTuple):
    """A column of the table: its heading, its width, and what it shows of a record."""

    heading: str
    width: int
    text: Callable[[dict[str, Any]], str]


def _columns() -> Iterator[Column]:
    widths = {"bench": -5, "method": -15, "selection": -10, "pattern": -27, "owners": -11, "device": -6}
    widths |= {"pages": 8, "request": 7, "page_size": 9, "repeat": 6}
    for field, width in widths.items():
        yield Column(field, width, lambda record, field=field: str(record[field]) or "-")
    for name in STATISTICS:
        yield Column(name, 9, lambda record, name=name: f"{record[name]:.2f}")
    yield Column("contiguous", 10, lambda record: _share(record["contiguous_share"]))


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


COLUMNS = tuple(_columns())


def heading() -> str:
    """Return the first line of the table."""
    return _row(column.heading for column in COLUMNS)


def row(record: dict[str, Any]) -> str:
    """Return the line of a record."""
    return _row(column.text(record) for column in COLUMNS)


def table(document: dict[str, Any]) -> list[str]:
    """Return the lines that a run printed, from the document that it wrote: the table and what was skipped."""
    lines = [heading(), *map(row, document["records"])]
    return lines + [skipped_line(each["case"], each["reason"]) for each in document["skipped"]]


def skipped_line(case: str, reason: str) -> str:
    """Return the line that names a case that was not measured."""
    return f"skipped: {case}: {reason}"


def _row(texts: Iterable[str]) -> str:
    cells = zip(texts, COLUMNS, strict=True)
    return " ".join(
        f"{text:<{-column.width}}" if column.width < 0 else f"{text:>{column.width}}" for text, column in cells
    )


def parser() -> Parser:
    """Return the parser of the command's arguments."""
    result = Parser("allocators", "Time the allocators' cases of the suite at any size: µs a call, one line a case.")
    add = result.add_argument
    everything = ",".join
    add("--bench", type=names(*BENCHES), default=everything(BENCHES), help="what to measure")
    add("--page-size", type=positive_int, default=64, help="slots of a page")
    add("--repeat", type=positive_int, default=20, help="samples of a case")
    add("--warmup", type=positive_int, default=5, help="calls before the samples")
    add("--seed", type=index, default=0, help="of the shuffled patterns")
    add("--json-output", type=output_file, metavar="FILE", help="write all figures there as well")
    add("--request-pages", type=positive_ints, default="1,8,64,512", help="pages of a request")
    add("--host-pages", type=positive_ints, help=f"pools by pages ({everything(map(str, DEFAULT_HOST_PAGES))})")
    add("--host-sizes-gb", type=positive_floats, help="pools by size, in 1e9 bytes, beside those by pages")
    add("--bytes-per-token", type=positive_int, default=100_000, help="for --host-sizes-gb")
    add("--patterns", type=names(*workloads.HOST_PATTERNS), default=everything(workloads.HOST_PATTERNS), help="host")
    add("--host-methods", type=names(*HOST_METHODS), default=everything(HOST_METHODS), help="how pages are chosen")
    add("--physical-pages", type=positive_ints, default="8192,32768", help="pages of each l1 lane")
    add("--cp-size", type=positive_int, default=8, help="lanes")
    add_device(result)
    add("--l1-selection", type=names(*pools.SELECTIONS), default="fifo,contiguous", help="how pages are chosen")
    add("--l1-ops", type=names(*L1_OPS), default="alloc_pages", help=f"some of {everything(L1_OPS)}")
    add("--l1-free-patterns", type=names(*workloads.FREE_PATTERNS), default=everything(workloads.FREE_PATTERNS))
    add("--l1-owner-patterns", type=names(*workloads.OWNER_PATTERNS), default=everything(workloads.OWNER_PATTERNS))
    add("--l1-free-room-ratio", type=positive_float, default=0.15, help="the room that free_room_stats aims at")
    add("--l1-free-room-trigger-ratio", type=positive_float, default=0.05, help="the room below which it does")
    implementations.add_arguments(result)
    return result


def host_pages(arguments: Namespace) -> list[int]:
    """Return the sizes of the host pools in pages, those given by pages and by size merged and sorted."""
    page_bytes = arguments.bytes_per_token * arguments.page_size
    by_size = [int(size * 1e9 // page_bytes) for size in arguments.host_sizes_gb or ()]
    return sorted({*(arguments.host_pages or ()), *by_size} or DEFAULT_HOST_PAGES)


def cases(arguments: Namespace, device: torch.device) -> list[Case]:
    """Return the cases that the arguments ask for, in the order of the table."""
    found = []
    if "host" in arguments.bench:
        methods = implementations.host_methods(arguments)
        grid = itertools.product(host_pages(arguments), arguments.request_pages, arguments.patterns, methods)
        found += [
            Case("host", method, "", pattern, "", "cpu", pages, request, arguments.page_size)
            for pages, request, pattern, method in grid
        ]
    if "l1" in arguments.bench:
        grid = itertools.product(
            arguments.physical_pages,
            arguments.request_pages,
            arguments.l1_free_patterns,
            arguments.l1_owner_patterns,
            arguments.l1_ops,
            arguments.l1_selection,
        )
        found += [
            Case("l1", op, selection, pattern, owners, str(device), pages, request, arguments.page_size)
            for pages, request, pattern, owners, op, selection in grid
        ]
    return found


def prepare(case: Case, arguments: Namespace) -> Prepared:
    """Build the pool of a case; NotImplementedError where the request does not fit."""
    return (_prepare_host if case.bench == "host" else _prepare_l1)(case, arguments)


def _prepare_host(case: Case, arguments: Namespace) -> Prepared:
    need = case.request * case.page_size

    def contiguous(_: int, slots: torch.Tensor) -> bool:
        return ascends(pages_of(slots, case.page_size), stride=1)

    free_order = workloads.HOST_PATTERNS[case.pattern](case.pages, case.request, arguments.seed)
    if free_order is None:
        raise NotImplementedError("the pool has too few pages for it")
    if case.method == "floor":
        return Prepared(lambda: need, floor, contiguous)
    if arguments.host_impl != implementations.OWN:
        return Prepared(*implementations.prepare_host(case, arguments.host_impl, free_order))
    pool = pools.host_pool(case.pages, case.page_size)
    pools.arrange_host(pool, free_order)
    snapshot = pools.feature(pool, "snapshot")()

    def rewind() -> int:
        pool.restore(snapshot)
        pools.settle(pool)
        return need

    return Prepared(rewind, pools.host_method(pool, case.method), contiguous)


def _prepare_l1(case: Case, arguments: Namespace) -> Prepared:
    owners = workloads.OWNER_PATTERNS[case.owners](case.request, arguments.cp_size)
    if arguments.l1_impl != implementations.OWN:
        return Prepared(*implementations.prepare_l1(case, arguments, owners))
    if arguments.l1_allocator == "production":
        pool = implementations.production_pool(arguments, case.pages, case.page_size, case.device)
    else:
        pool = pools.lane_pool(case.pages, case.page_size, arguments.cp_size, case.selection, case.device)
    pools.arrange_lanes(pool, case.pattern, owners, arguments.seed)
    restore = implementations.restorer(pool)
    allocate = pools.feature(pool, "alloc_pages_with_owners")

    def rewind() -> np.ndarray:
        restore()
        return owners

    def rewind_and_allocate() -> torch.Tensor:
        slots = allocate(rewind())
        if slots is None:
            raise NotImplementedError("the request does not fit")
        return slots

    def contiguous(page_ids: np.ndarray) -> bool:
        return lanes_ascend(page_ids, owners, arguments.cp_size)

    def slots_contiguous(slots: torch.Tensor) -> bool:
        return contiguous(pages_of(slots, case.page_size))

    match case.method:
        case "stats":
            return Prepared(rewind, pools.feature(pool, "compute_owner_lane_stats"), None)
        case "free_room_stats":
            ratios = {
                "target_ratio": arguments.l1_free_room_ratio,
                "trigger_ratio": arguments.l1_free_room_trigger_ratio,
            }
            call = pools.feature(pool, "compute_owner_lane_free_room_stats")
            return Prepared(rewind, functools.partial(call, **ratios), None)
        case "select_only":
            return Prepared(rewind, pools.feature(pool, "select_pages"), lambda _, page_ids: contiguous(page_ids))
        case "free":
            free = pools.feature(pool, "free")
            return Prepared(rewind_and_allocate, free, lambda slots, _: slots_contiguous(slots))
        case _:
            return Prepared(rewind, allocate, lambda _, slots: slots_contiguous(slots))


def ascends(page_ids: np.ndarray, stride: int) -> bool:
    """Whether each page id is the one before plus `stride`."""
    return bool(np.all(np.diff(page_ids) == stride))


def lanes_ascend(page_ids: np.ndarray, owners: np.ndarray, cp_size: int) -> bool:
    """Whether the physical pages of each rank ascend by one: its logical ones do by `cp_size`."""
    return all(ascends(page_ids[owners == rank], cp_size) for rank in range(cp_size))


def pages_of(slots: torch.Tensor, page_size: int) -> np.ndarray:
    """Return the page ids of an allocation, in its order."""
    return slots.cpu().numpy()[::page_size] // page_size


def measure(case: Case, arguments: Namespace) -> dict[str, Any]:
    """Measure a case; return its record. NotImplementedError where the request does not fit."""
    prepared = prepare(case, arguments)
    on_cuda = case.device != "cpu"
    synchronize = functools.partial(torch.cuda.synchronize, case.device) if on_cuda else lambda: None
    clock, call = time.perf_counter, prepared.call
    samples, in_one_run = [], 0
    for turn in range(arguments.warmup + arguments.repeat):
        argument = prepared.prepare()
        start = clock()
        synchronize()
        result = call(argument)
        synchronize()
        elapsed = clock() - start
        if result is None:
            raise NotImplementedError("the request does not fit")
        if turn >= arguments.warmup:
            samples.append(elapsed * 1e6)
            in_one_run += prepared.contiguous is not None and prepared.contiguous(argument, result)
        del result, argument
    share = None if prepared.contiguous is None else in_one_run / arguments.repeat
    return asdict(case) | {"repeat": arguments.repeat} | summary(samples) | {"contiguous_share": share}


def main(argv: list[str]) -> int:
    """Run the command; return the exit status."""
    command = parser()
    arguments = command.parse_args(argv)
    device = torch_device(command, arguments)
    if "host" in arguments.bench and host_pages(arguments)[0] < 1:
        page_gb = arguments.bytes_per_token * arguments.page_size / 1e9
        command.error(f"argument --host-sizes-gb: a pool has no page: write at least {page_gb:g}")
    implementations.check(command, arguments)
    todo = cases(arguments, device)
    records, skipped = [], []
    progress = Progress(len(todo))
    progress.line(heading())
    for case in todo:
        progress.set_description_str(str(case))
        try:
            records.append(measure(case, arguments))
        except NotImplementedError as reason:
            skipped.append({"case": str(case), "reason": str(reason)})
        else:
            progress.line(row(records[-1]))
        progress.update()
    for each in skipped:
        progress.line(skipped_line(each["case"], each["reason"]))
    progress.close()
    if arguments.json_output is not None:
        given = {name: str(value) if name == "json_output" else value for name, value in vars(arguments).items()}
        write_json(arguments.json_output, {"arguments": given, "records": records, "skipped": skipped})
    return 0
