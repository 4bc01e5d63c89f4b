"""The page beside the engines: that it says what was recorded, and that what is in docs/ is of the recorded run."""

import itertools
import json
import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks import stages
from history import UsageError, lock, performance, plot
from history.__main__ import main

SIZES = ("1", "8", "64", "512")
NAMES = [name for name in performance.ALLOCATORS if name != "lmcache_batched"]


def table(*axes, value=lambda *parameters: 1e-6):
    return [[list(parameters), value(*parameters)] for parameters in itertools.product(*axes)]


def line(allocator, **changes):
    figures = {
        "trace": "a trace", "allocator": allocator, "requests": 1_000, "miss_rate": 0.914, "alloc_ms": 10.0,
        "free_ms": 60.0, "runs_mean": 1.19, "runs_p50": 1.0, "runs_max": 8, "wall_seconds": 2.0, "allocator_share": 0.5,
    }  # fmt: skip
    return {**figures, **changes}


@pytest.fixture
def document():
    """What `record` writes, of figures that are easy to read: everyone takes 1 µs a call."""
    by_size = table(SIZES, NAMES)
    return {
        "commit": "abcd1234",
        "date": "2026-01-02",
        "machine": {"os": "Linux", "arch": "x86_64", "cpu": "AMD EPYC", "num_cpu": "2", "ram": "24GiB"},
        "versions": dict.fromkeys(("python", "torch", "numpy", "numba", "sglang", "vllm", "lmcache"), "1.0"),
        "figures": {
            "bench_peers.PeerFreshAlloc.time_alloc": by_size,
            "bench_peers.PeerChurnedAlloc.time_alloc": by_size,
            "bench_peers.PeerFree.time_free": table(SIZES, [name for name in NAMES if "c" not in name]),
            "bench_peers.PeerRetention.track_retained_bytes": table(NAMES[:5], value=lambda name: 512_000),
            "bench_peers.PeerBooks.track_book_bytes_per_page": table(NAMES[:6], value=lambda name: 12.36),
            "bench_peers.PeerPrefixMatch.time_match": table(
                ("100", "10000"), ("kvpool_int64", "kvpool_int32", "sglang", "floor")
            ),
            "bench_peers.PeerAppend.time_append": table(
                ("kvpool_buffer", "kvpool_request", "vllm", "list", "array"), value=lambda name: 6e-8
            ),
            "bench_host.Growth.time_alloc_free": table(("8192", "65536"), ("8", "512"), ("fifo", "floor")),
            "bench_size.HugePool.time_alloc_free": table(("16777216",), ("8", "512"), ("fifo",)),
            "bench_size.SharedPool.time_alloc_free": table(("1", "8"), value=lambda threads: 2e-6),
            "bench_size.Lanes.time_alloc_free": table(("1", "64"), value=lambda lanes: 2e-5),
        },
        "stages": [
            {"stage": stage, "container": container, "p50": 10.0}
            for stage in stages.STAGES
            for container in ("list", "kvpool")
        ],
        "replays": [[line("kvpool_fifo"), line("vllm")]],
    }


def set_figure(document, name, parameters, value):
    for each in document["figures"][name]:
        if each[0] == list(parameters):
            each[1] = value
            return
    raise KeyError(parameters)


def page(document):
    return performance.pages(document)[performance.PAGE]


def test_figures_are_those_of_one_call(document):
    set_figure(document, "bench_peers.PeerChurnedAlloc.time_alloc", ("64", "sglang"), 2.5e-5)
    text = page(document)
    assert "| SGLang HostKVCache | slots, a view of its free list | 1 | 1 | 25 | 1 |" in text
    assert "| SGLang HostKVCache | slots | even | even | kvpool 25.0x | even |" in text
    assert "vLLM's request 0.06 (it keeps two lists)" in text
    assert "2 µs of CPU a pair with 1, 2 µs of CPU a pair with 8" in text


def test_what_was_not_measured_reads_not_applicable(document):
    name = "bench_peers.PeerChurnedAlloc.time_alloc"
    document["figures"][name] = [each for each in document["figures"][name] if each[0] != ["512", "lmcache"]]
    assert "| LMCache addresses | one address range, or a refusal | 1 | 1 | 1 | n/a |" in page(document)


def test_the_machine_is_that_of_the_record(tmp_path):
    recorded = {"arch": "x", "cpu": "c", "machine": "m", "num_cpu": "2", "os": "o", "ram": "r", "version": 1}
    (tmp_path / "machine.json").write_text(json.dumps(recorded))
    assert performance._machine(tmp_path) == {"os": "o", "arch": "x", "cpu": "c", "num_cpu": "2", "ram": "r"}


def test_nothing_is_lost_where_all_are_even(document):
    assert page(document).rstrip().endswith("Nowhere.")


def test_where_kvpool_loses_is_said_with_the_reason(document):
    set_figure(document, "bench_peers.PeerChurnedAlloc.time_alloc", ("1", "vllm"), 2e-7)
    set_figure(document, "bench_peers.PeerBooks.track_book_bytes_per_page", ("sglang_paged",), 8.0)
    document["replays"][0][1] |= {"alloc_ms": 1.0, "free_ms": 2.0}
    document["replays"][0].append(line("kvpool_pages"))
    text = page(document).split("## Where kvpool is slower")[1]
    assert f"- **vLLM BlockPool**, because {performance.REASONS['vllm']}:\n" in text
    assert "  - allocating 1 page: 1 beside 0.2 µs\n" in text
    assert "  - replaying a trace: 70 beside 3 ms for 1,000 requests\n" in text
    assert "- **SGLang paged**" in text
    assert "  - books: 12.4 beside 8 bytes a page\n" in text
    assert text.count("\n- **") == 2


def test_every_peer_has_a_reason_to_win():
    assert set(performance.REASONS) == {name for name, what in performance.ALLOCATORS.items() if what.kind == "peer"}


def test_caveats_machine_and_versions_come_first(document):
    text = page(document)
    for words in ("AMD EPYC, 2 cores, 24GiB", "`abcd1234`, 2026-01-02", "SGLang 1.0, vLLM 1.0, LMCache 1.0"):
        assert words in text.split("## Allocation")[0]


def test_tables_have_as_many_cells_as_headings(document):
    for block in page(document).split("\n\n"):
        rows = [row for row in block.splitlines() if row.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1, rows


def test_each_plot_is_an_image_that_the_page_shows(document):
    found = performance.pages(document)
    text = found.pop(performance.PAGE)
    assert len(found) == 6
    for path, svg in found.items():
        assert f"](performance/{path.name})" in text
        root = ElementTree.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "prefers-color-scheme: dark" in svg


def test_a_plot_has_a_line_a_series_and_labels_that_do_not_touch():
    series = [plot.Series(f"s{index}", [(1, 1 + index / 100), (512, 100 + index)]) for index in range(6)]
    svg = ElementTree.fromstring(plot.plot("t", "x", "y", [*series, plot.Series("none", [])]))
    space = "{http://www.w3.org/2000/svg}"
    assert len(svg.findall(f".//{space}polyline")) == 6
    labels = [each for each in svg.iter(f"{space}text") if "label" in each.get("class")]
    assert [each.text for each in labels] == [f"s{index}" for index in range(6)]
    places = sorted(float(each.get("y")) for each in labels)
    assert all(below - above >= plot.LABEL_STEP - 0.2 for above, below in itertools.pairwise(places))
    assert "none" not in [each.text for each in labels]


def test_a_point_is_where_its_logarithm_is():
    svg = ElementTree.fromstring(plot.plot("t", "x", "y", [plot.Series("s", [(1, 1), (10, 10), (100, 100)])]))
    points = svg.find(".//{http://www.w3.org/2000/svg}polyline").get("points").split()
    (x0, y0), (x1, y1), (x2, y2) = [tuple(map(float, point.split(","))) for point in points]
    assert (x0, x2, y0, y2) == (plot.LEFT, plot.WIDTH - plot.RIGHT, plot.HEIGHT - plot.BOTTOM, plot.TOP)
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.1)


def test_what_is_in_docs_is_of_the_recorded_run():
    for path, text in performance.pages(json.loads(performance.RECORDED.read_text())).items():
        assert path.read_text() == text, f"{path.name} is not of docs/performance.json: make performance"


def test_a_page_without_a_record_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(performance, "RECORDED", tmp_path / "none.json")
    monkeypatch.setattr(lock, "PATH", tmp_path / "lock")
    with pytest.raises(UsageError, match="nothing is recorded"):
        performance.write()
    assert main(["performance"]) == 2
    assert "nothing is recorded" in capsys.readouterr().err
