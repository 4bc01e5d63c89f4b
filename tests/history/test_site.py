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
from history import commits, milestones, records
from history.paths import MILESTONES, ROOT
from history.site import libraries, names, trend
from history.site.recorded import Recorded
from tests.history import browser
from tests.history.recorded import ALLOC, CANARY, RUNS, write

RECORDED = ROOT / "html"


def publish(folder: Path, **settings: str) -> Path:
    """Publish a history of three commits; return the site's folder."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q", "-b", "main"], cwd=folder, check=True)
    for index, (speed, floor) in enumerate([(1e-3, 1e-6), (1e-3, 1e-6), (1e-5, 0.8e-6)]):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", f"Change {index}"], cwd=folder, check=True)
        commit = subprocess.check_output([*git, "rev-parse", "HEAD"], cwd=folder, text=True).strip()
        figures = {CANARY: [1e-4], ALLOC: [speed, floor, 2 * speed, floor], RUNS: [2.0 if index else math.nan]}
        write(folder / "results", commit, figures, date=1_700_000_000 + 86_400 * index)
    conf = Config.from_json(
        {
            "project": "kvpool",
            "repo": str(folder),
            "branches": ["main"],
            "results_dir": str(folder / "results"),
            "html_dir": str(folder / "html"),
            **settings,
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
def addressed(tmp_path_factory):
    """A site of a repository that has an address."""
    problem = libraries.bring(tmp_path_factory.mktemp("vendor"))
    if problem and os.environ.get("KVPOOL_BROWSER") != "required":
        pytest.skip(f"needs the page's libraries: {problem}")
    return publish(
        tmp_path_factory.mktemp("repository"),
        show_commit_url="https://example.org/commit/",
        show_source_url="https://example.org/blob/",
    )


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


BRIGHTNESS = """
    const parts = colour => colour.match(/[\\d.]+/g).map(Number);
    const mean = colour => parts(colour).slice(0, 3).reduce((sum, part) => sum + part, 0) / 3;
    const shown = [...document.querySelectorAll(arguments[0])].filter(each => each.offsetParent);
    return shown.map(each => {
        const style = getComputedStyle(each);
        let behind = each;
        while (parts(getComputedStyle(behind).backgroundColor)[3] === 0) { behind = behind.parentElement; }
        return [mean(style.color), mean(getComputedStyle(behind).backgroundColor)];
    });
"""


def contrast(window, selector, scheme):
    """Return by how much the text of what is shown is darker (or by night brighter) than what is behind it."""
    sign = 1 if scheme == "light" else -1
    return min(sign * (behind - text) for text, behind in window.run(BRIGHTNESS, selector))


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


def test_a_graph_of_the_front_page_is_logarithmic_and_has_the_floor(window, address):
    window.open(f"{address}/index.html")
    window.run("document.querySelector('a.row').click()")
    window.wait(SERIES)
    assert window.wait("return document.getElementById('log-scale').classList.contains('active')")
    labels = window.wait("return jQuery('#main-graph').data('plot').getData().map(series => series.label)")
    assert sorted(re.findall(r"method-(\w+)", " ".join(labels))) == ["contiguous", "floor"]


def test_each_page_of_the_grid_leads_back_to_the_front_page(window, address):
    window.open(f"{address}/grid.html#/regressions")
    window.wait("return document.querySelector('#regressions-body table')")
    window.run("[...document.querySelectorAll('#nav a')].find(link => link.innerText == 'Front page').click()")
    assert window.wait("return document.querySelectorAll('.family').length") > 0


@pytest.mark.parametrize("page", ["summarylist", "regressions"])
def test_without_an_address_a_commit_is_no_link(window, address, page):
    window.open(f"{address}/grid.html#/{page}")
    window.wait(f"return document.querySelector('#{page}-body table')")
    window.wait("return document.querySelector('[aria-sort]')")
    links = window.run(
        f"return [...document.querySelectorAll('#{page}-body td a')].map(link => link.getAttribute('href'))"
    )
    assert [link for link in links if re.match(r"#(\.\./compare/)?[0-9a-f]{6}", link)] == []


@pytest.mark.parametrize("later", [False, True])
def test_an_address_of_nothing_shows_the_grid(window, address, later):
    window.open(f"{address}/grid.html{'#/summarylist' if later else '#abcdef12'}")
    if later:
        window.wait("return document.querySelector('[aria-sort]')")
        window.run("location.hash = '#abcdef12'")
    assert window.wait("return document.querySelector('.benchmark-container')?.offsetParent && location.hash") == "#/"


def test_a_click_on_a_point_opens_no_page_without_an_address(window, address):
    window.open(f"{address}/grid.html#{ALLOC}")
    window.wait(SERIES)
    assert window.run("return window.open(jQuery.asv.main_json.show_commit_url + 'abcdef12')") is None


def test_with_an_address_a_commit_is_a_link(window, addressed):
    window.open(f"{addressed.as_uri()}/grid.html#/summarylist")
    window.wait("return document.querySelector('[aria-sort]')")
    link = window.wait("const link = document.querySelector('.change-date a'); return link && link.href")
    assert link.startswith("https://example.org/commit/")


def test_with_an_address_a_graph_leads_to_its_benchmark(window, addressed):
    window.open(f"{addressed.as_uri()}/grid.html#{ALLOC}")
    link = window.wait("const link = document.querySelector('#title a'); return link && link.href")
    assert link == "https://example.org/blob/benchmarks/bench_host.py"
    window.run("location.hash = '#/summarylist'")
    assert window.wait("return document.getElementById('title').innerText") == "List of benchmarks"


def test_a_regression_that_may_be_noise_is_grey(window, addressed):
    window.open(f"{addressed.as_uri()}/grid.html#/regressions")
    window.wait("return document.querySelector('[aria-sort]')")
    hash_, drift = window.run("return Object.entries(kvpool.drifts).pop()")
    for factor, expected in [(1 + drift - 0.01, "noise"), (1 + drift + 0.02, "")]:
        window.run(
            "const row = document.querySelector('#regressions-body tbody').insertRow();"
            "arguments[0].forEach(text => { row.insertCell().innerText = text; });",
            [f"{ALLOC}(1, 'contiguous')", "2026-01-01", hash_, f"{factor}x"],
        )
        window.run("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found = "return [...document.querySelectorAll('#regressions-body tbody:first-of-type tr')].pop().className"
        assert window.run(found) == expected


def test_the_list_colours_only_what_kvpool_changed(window, addressed):
    window.open(f"{addressed.as_uri()}/grid.html#/summarylist")
    window.wait("return document.querySelector('[aria-sort]')")
    classes = window.run(
        "return Object.fromEntries([...document.querySelectorAll('#summarylist-body tbody tr')]"
        ".map(row => [row.cells[0].innerText, row.cells[2].className]))"
    )
    assert classes[f"{ALLOC} (64, 'contiguous')"] == "change negative-change"
    assert classes[f"{ALLOC} (64, 'floor')"] == "change noise"


def test_the_zoom_of_a_graph_is_in_its_address(window, address):
    window.open(f"{address}/grid.html#{ALLOC}")
    window.wait(SERIES)
    revisions = window.run("return Object.entries(jQuery.asv.main_json.revision_to_hash)")
    (first, _), *_, (from_, from_hash), (to, to_hash) = sorted((int(number), name) for number, name in revisions)
    window.run(
        "jQuery('#main-graph').data('plot').setSelection({xaxis: {from: arguments[0], to: arguments[1]}})", from_, to
    )
    zoom = f"{from_hash[:8]}..{to_hash[:8]}"
    assert zoom in window.wait("return location.hash.includes('zoom') && location.hash")
    window.open(f"{address}/grid.html#{ALLOC}?zoom={zoom}")
    least = "const plot = jQuery('#main-graph').data('plot'); return plot && plot.getAxes().xaxis.min"
    window.wait(f"const least = (() => {{ {least} }})(); return least == arguments[0]", from_)
    window.run("document.getElementById('unzoom').click()")
    window.wait(f"const least = (() => {{ {least} }})(); return least == null || least <= arguments[0]", first)
    assert "zoom" not in window.run("return location.hash")
    # By keyboard: the range is typed.
    window.run("document.getElementById('range').value = arguments[0]; document.getElementById('range').focus()", "x")
    window.run("document.getElementById('range').select()")
    window.press(*zoom, browser.ENTER)
    window.wait(f"const least = (() => {{ {least} }})(); return least == arguments[0]", from_)
    assert zoom in window.run("return location.hash")


def test_the_grid_is_used_by_keyboard_and_its_controls_have_names(window, address):
    window.open(f"{address}/grid.html#{ALLOC}")
    window.wait(SERIES)
    window.wait("return document.querySelector('#log-scale[aria-pressed=false]')")
    window.press(browser.TAB)
    assert window.run("return document.activeElement.innerText") == "Skip to the content"
    window.press(browser.ENTER)
    assert window.run("return document.activeElement.id") == "graph"
    window.run("document.getElementById('log-scale').focus()")
    window.press(browser.SPACE)
    assert window.wait("return document.querySelector('#log-scale[aria-pressed=true]')")
    assert "y-axis-scale=log" in window.run("return location.hash")
    window.run("document.querySelector('#graphdisplay-navigation-params .panel:last-child .btn').focus()")
    chosen = window.run("return document.activeElement.innerText")
    window.press(browser.ENTER)
    assert window.wait("return document.activeElement.getAttribute('aria-pressed') == 'false'")
    assert window.run("return document.activeElement.innerText") == chosen
    unnamed = "return [...document.querySelectorAll('input, button, [role=group], [role=img]')]"
    unnamed += ".filter(each => each.offsetParent && !(each.getAttribute('aria-label') || each.innerText)).length"
    assert window.run(unnamed) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("", "#summarygrid-display h1"),
        ("#/summarylist", "#summarylist-body td a"),
        ("#/regressions", "#regressions-body button"),
        (f"#{ALLOC}", "#graph-display .panel-heading"),
    ],
)
def test_the_grid_is_readable_on_a_phone_by_day_and_night(window, address, scheme, page, shown):
    window.prefer(scheme)
    window.resize(390, 844)
    window.open(f"{address}/grid.html{page}")
    window.wait(f"return [...document.querySelectorAll('{shown}')].some(each => each.offsetParent)")
    assert window.run("return document.documentElement.scrollWidth") <= 390
    assert contrast(window, shown, scheme) > 100
    window.command("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["index.html", "graphs.html", "compare.html"])
def test_a_page_of_ours_is_readable_on_a_phone_by_day_and_night(window, address, scheme, page):
    window.prefer(scheme)
    window.resize(390, 844)
    window.open(f"{address}/{page}")
    window.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert window.run("return document.documentElement.scrollWidth") <= 390
    assert contrast(window, "h1, h2, h3, p, td, th, nav a, summary, pre, select", scheme) > 50
    assert contrast(window, "h1", scheme) > 150
    window.command("Emulation.clearDeviceMetricsOverride")


ROWS = """
    return Object.fromEntries([...document.querySelectorAll("#figures tbody")].flatMap(body =>
        [...body.rows].slice(1).map(row => [
            `${body.rows[0].innerText.trim()}(${row.cells[0].innerText})`,
            [...[...row.cells].slice(1).map(cell => cell.innerText), row.cells[3].className],
        ])));
"""


def test_two_commits_are_compared_and_the_address_keeps_the_choice(window, addressed):
    window.open(f"{addressed.as_uri()}/compare.html")
    options = window.run("return [...document.querySelectorAll('#before option')].map(option => option.innerText)")
    hashes = [option.split()[0] for option in options]
    assert [option.split(" ", 1)[1] for option in options] == ["Change 0", "Change 1", "Change 2"]
    found = window.run(ROWS)  # the last two
    assert found[f"{ALLOC}(64, 'contiguous')"] == ["2 ms", "20 μs", "0.0100", "better"]
    assert found[f"{ALLOC}(64, 'floor')"] == ["1 μs", "800 ns", "0.800", "noise"]
    assert "2 better, 0 worse" in window.run("return document.getElementById('summary').innerText")
    window.run("const select = document.getElementById('before'); select.focus()")
    window.press(browser.UP)
    assert window.wait("return location.hash") == f"#{hashes[0]}..{hashes[2]}"
    assert f"{RUNS}('fewest_runs')" not in window.run(ROWS)  # the first has no figure of it
    window.press(browser.TAB)
    assert window.run("return document.activeElement.id") == "after"
    window.press(browser.UP)
    address = window.run("return location.href")
    assert address.endswith(f"#{hashes[0]}..{hashes[1]}")
    assert window.run(ROWS)[f"{ALLOC}(64, 'contiguous')"] == ["2 ms", "2 ms", "1", "noise"]
    window.press(browser.TAB, browser.SPACE)
    assert window.run("return [...document.querySelectorAll('#figures tbody')].every(body => !body.offsetParent)")
    window.open(address)
    chosen = window.run("return ['before', 'after'].map(id => document.getElementById(id).selectedIndex)")
    assert chosen == [0, 1]
    link = window.run("return document.querySelector('#summary a').href")
    assert link == f"https://example.org/commit/{hashes[1]}"


def test_the_comparison_takes_the_noise_that_the_front_page_takes(window, address, site):
    window.open(f"{address}/compare.html")
    found = Recorded.read(site[1])
    by_hash = {each.commit[:8]: each for each in found.shown}
    last = [by_hash[name] for name in window.run("return commits.slice(-2).map(each => each.hash)")]
    drift = math.expm1(window.run("return drift(commits.length - 2, commits.length - 1)"))
    assert drift == pytest.approx(trend.drift(*last, found.is_timed), rel=1e-3)


def test_an_address_of_commits_that_are_not_there_shows_the_last_two(window, address):
    window.open(f"{address}/compare.html#0123456..garbage")
    last = window.run("return document.querySelectorAll('#before option').length - 1")
    chosen = window.run("return ['before', 'after'].map(id => document.getElementById(id).selectedIndex)")
    assert chosen == [max(last - 1, 0), last]


@pytest.mark.parametrize("page", ["index.html", "graphs.html", "compare.html"])
def test_a_page_of_ours_is_used_by_keyboard(window, address, page):
    window.open(f"{address}/{page}")
    window.press(browser.TAB)
    assert window.run("return document.activeElement.innerText") == "Skip to the content"
    assert window.run("return document.activeElement.getBoundingClientRect().left") >= 0
    window.press(browser.ENTER)
    assert window.wait("return document.activeElement.id") == "content"
    assert window.run("return location.pathname").endswith(page)
    window.press(browser.TAB)
    focused = window.run(
        "return [document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"
    )
    assert focused[0] in {"A", "SELECT", "DIV", "SUMMARY"}
    assert focused[1] != "none"
    unnamed = window.run(
        "return [...document.querySelectorAll('svg[role=img], [role=region], nav, select, a')]"
        ".filter(each => !(each.getAttribute('aria-label') || each.innerText || each.labels?.length)).length"
    )
    assert unnamed == 0


def test_every_link_of_our_pages_leads_to_a_file_of_the_site(site):
    html, _ = site
    for page in ("index.html", "graphs.html", "compare.html"):
        targets = re.findall(r'(?:href|src)="([^"#]*)', (html / page).read_text())
        assert [target for target in targets if target and not (html / target).is_file()] == []
    anchors = re.findall(r'href="graphs\.html#([^"]*)"', (html / "index.html").read_text())
    assert set(anchors) <= set(re.findall(r'id="([^"]*)"', (html / "graphs.html").read_text()))
    assert anchors


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


def test_the_milestones_are_named_on_the_graphs_of_the_recorded_history():
    data = (RECORDED / "grid-data.js").read_text().removeprefix("const kvpool = ").rstrip(";\n")
    found = json.loads(data)["milestones"]
    listed = [each.commit for each in milestones.read(MILESTONES)]
    assert {commit[:8] for commit, _ in found} <= {commit[:8] for commit in listed}
    assert all(name for _, name in found)


def test_a_milestone_is_drawn_at_its_commit(window, address):
    window.open(f"{address}/grid.html#{ALLOC}")
    window.wait(SERIES)
    drawn = window.run("""
        const written = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text) { written.push(text); };
        const [hash] = Object.values(jQuery.asv.main_json.revision_to_hash);
        kvpool.milestones.splice(0, Infinity, [hash, "the first of all"]);
        jQuery(window).trigger("resize");
        CanvasRenderingContext2D.prototype.fillText = write;
        return written;
    """)
    assert "the first of all" in drawn


def test_names_of_milestones_are_their_reasons(tmp_path):
    path = tmp_path / "milestones.txt"
    path.write_text("# list\nabcd the indexed allocators: flat arrays\nffff another\n")
    found = names.read(path, ["abcd" * 10, "0" * 40])
    assert found == {"abcd" * 10: "the indexed allocators: flat arrays"}
    assert names.read(tmp_path / "none.txt", ["abcd" * 10]) == {}
    assert names.short(found["abcd" * 10]) == "the indexed allocators"
    assert len(names.short("word " * 30)) <= 42
