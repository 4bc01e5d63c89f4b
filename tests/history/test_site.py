"""The published site, looked at as a person would: in a browser that reaches no other host."""

import functools
import http.server
import json
import math
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from asv.commands.publish import Publish
from asv.config import Config

import history.asv_site  # noqa: F401  (wraps Publish.run)
from history import commits, records
from history.paths import ROOT
from history.site import libraries, trend
from tests.history import browser
from tests.history.recorded import ALLOC, CANARY, RUNS, write

RECORDED = ROOT / "html"


def publish(folder: Path) -> Path:
    """Publish a history of three commits; return the site's folder."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q", "-b", "main"], cwd=folder, check=True)
    for index, speed in enumerate([1e-3, 1e-3, 1e-5]):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", f"Change {index}"], cwd=folder, check=True)
        commit = subprocess.check_output([*git, "rev-parse", "HEAD"], cwd=folder, text=True).strip()
        figures = {CANARY: [1e-4], ALLOC: [speed, 1e-6, 2 * speed, 1e-6], RUNS: [2.0 if index else math.nan]}
        write(folder / "results", commit, figures, date=1_700_000_000 + 86_400 * index)
    conf = Config.from_json(
        {
            "project": "kvpool",
            "repo": str(folder),
            "branches": ["main"],
            "results_dir": str(folder / "results"),
            "html_dir": str(folder / "html"),
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commits, "ROOT", folder)
        Publish.run(conf, pull=False)
    return folder / "html"


@pytest.fixture(scope="module", params=["published now", "html/"])
def site(request, tmp_path_factory):
    """A site and the results it was made from."""
    if request.param == "html/":
        if not (RECORDED / "index.html").is_file():
            pytest.skip("no history is recorded yet")
        return RECORDED, ROOT / "results"
    problem = libraries.bring(tmp_path_factory.mktemp("vendor"))
    if problem and os.environ.get("KVPOOL_BROWSER") != "required":
        pytest.skip(f"needs the page's libraries: {problem}")
    folder = tmp_path_factory.mktemp("repository")
    return publish(folder), folder / "results"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("profile")) as window:
        yield window


class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """A server that takes all the connections a page opens at once: with the usual queue of 5 some were refused."""

    request_queue_size = 128


@pytest.fixture(params=["http", "file"])
def address(request, site):
    html, _ = site
    if request.param == "file":
        yield html.as_uri()
        return
    with Server(("127.0.0.1", 0), functools.partial(Quiet, directory=html)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


# What a browser says of a connection to this machine that broke. It says nothing of the page, whose missing files are
# answers of status 404; what a page lacks for it, the tests miss.
BROKEN_CONNECTION = re.compile(r"^http://127\.0\.0\.1:.* net::ERR_(SOCKET_NOT_CONNECTED|CONNECTION_(RESET|CLOSED))$")


@pytest.fixture
def window(chromium):
    chromium.errors()
    yield chromium
    assert [error for error in chromium.errors() if not BROKEN_CONNECTION.match(error)] == []


def measured_names(html):
    """Return the benchmarks that have a graph."""
    return {path.name.removesuffix(".json") for path in (html / "graphs" / "summary").glob("*.json")}


def test_the_grid_has_a_tile_with_a_line_for_each_benchmark(window, address, site):
    window.open(f"{address}/grid.html")
    names = window.wait(
        "return [...document.querySelectorAll('.benchmark-container')].map(tile => tile.innerText.trim())"
    )
    suite = json.loads((site[0] / "index.json").read_text())["benchmarks"]
    assert sorted(names) == sorted(name.split(".", 1)[1] for name in suite)
    window.run("document.querySelectorAll('.benchmark-container').forEach(tile => tile.scrollIntoView())")
    assert window.wait("return document.querySelectorAll('.benchmark-plot canvas').length") > 0


SERIES = """
    const plot = jQuery('#main-graph').data('plot');
    return plot && plot.getData().map(series => series.data.filter(point => point && point[1] !== null).length);
"""


def test_a_graph_has_a_point_for_each_commit_measured_and_its_buttons_choose(window, address, site):
    _, results = site
    shown = trend.longest_history(records.load(results), {})
    host = [case for case in sorted(shown[-1].figures) if case.benchmark.startswith("bench_host.")]
    case = next(case for case in host if case.parameters)
    commits_measured = sum(case in each.figures for each in shown)
    names = records.suite(results)[case.benchmark]["param_names"]
    chosen = "&".join(f"p-{name}={value}" for name, value in zip(names, case.parameters, strict=True))
    machine = f"machine={shown[-1].machine}"
    window.open(f"{address}/grid.html#{case.benchmark}?{machine}&{chosen}")
    assert [count for count in window.wait(SERIES) if count] == [commits_measured]

    # The last panel of buttons is that of the last parameter: another value of it is another line.
    window.run("document.querySelector('#graphdisplay-navigation-params .panel:last-child .btn:not(.active)').click()")
    lines = "return jQuery('#main-graph').data('plot').getData().filter(series => series.data.length).length"
    assert window.wait(f"{lines} == 2 && 2") == 2


def test_the_list_and_the_regressions_fill(window, address, site):
    window.open(f"{address}/grid.html#/summarylist")
    rows = window.wait("return document.querySelectorAll('#summarylist-body tbody tr').length")
    assert rows >= len(measured_names(site[0]))
    window.open(f"{address}/grid.html#/regressions")
    window.wait("return document.querySelector('#regressions-body table')")


def test_the_front_page_leads_to_a_graph(window, address):
    window.open(f"{address}/index.html")
    assert window.run("return document.querySelectorAll('.family').length") > 0
    assert window.run("return document.querySelectorAll('.family polyline').length") > 0
    label = window.run("const [row] = document.querySelectorAll('a.row'); row.click(); return row.href")
    assert "grid.html#bench_" in label
    assert window.wait(SERIES)


def test_an_address_that_asv_writes_still_leads_to_its_graph(window, address):
    window.open(f"{address}/index.html#{ALLOC}")
    assert window.wait(SERIES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_front_page_is_readable_on_a_phone_by_day_and_night(window, address, scheme):
    window.prefer(scheme)
    window.resize(390, 844)
    window.open(f"{address}/index.html")
    assert window.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    colours = window.run(
        "const style = getComputedStyle(document.body); return [style.color, style.backgroundColor]"
        ".map(colour => colour.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3)"
    )
    assert abs(colours[0] - colours[1]) > 150
    assert (colours[0] < colours[1]) == (scheme == "light")
    window.command("Emulation.clearDeviceMetricsOverride")


def test_without_npm_the_grid_is_as_asv_makes_it_and_a_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(libraries, "SCRATCH", tmp_path / "scratch")
    which = shutil.which
    monkeypatch.setattr("shutil.which", lambda name: None if name == "npm" else which(name))
    html = publish(tmp_path)
    assert "as asv publishes it: npm is not installed." in capsys.readouterr().out
    assert "https://code.jquery.com/" in (html / "grid.html").read_text()
    assert not (html / "vendor").exists()
    assert "kvpool: performance history" in (html / "index.html").read_text()


def test_a_library_that_asv_adds_is_not_overlooked(tmp_path):
    page = tmp_path / "grid.html"
    page.write_text('<script src="https://cdn.example.org/new.js" integrity="x"></script>')
    with pytest.raises(LookupError, match=r"new\.js"):
        libraries.rewrite(page)


def test_the_lock_file_pins_each_library_by_a_hash_and_names_no_registry():
    text = (libraries.HERE / "package-lock.json").read_text()
    lock = json.loads(text)["packages"]
    wanted = json.loads((libraries.HERE / "package.json").read_text())["dependencies"]
    assert {f"node_modules/{name}" for name in wanted} == set(lock) - {""}
    assert all(lock[f"node_modules/{name}"]["version"] == version for name, version in wanted.items())
    assert all(each["integrity"].startswith("sha512-") for name, each in lock.items() if name)
    assert "://" not in text
