"""What the engines' own tests are run by: two runs compared, each difference explained, and what is missing is said."""

import io
import json
import os
import subprocess
import sys
import tarfile
import types

import pytest

from benchmarks import adopting
from history import UsageError, engine_adapters, engine_tests
from history.engine_adapters import Difference, Replacement
from history.engine_tests import Outcomes, Suite
from history.paths import ROOT

REASONS = (
    Difference("t.py::test_links", "no attribute 'head'", "reads the links"),
    Difference("t.py::test_order[", "assert [1, 2]", "expects another order"),
)


def outcomes(built=1, **found):
    """Outcomes of tests of t.py: by name the outcome, or an error."""
    known = ("passed", "skipped", "failed")
    tests = {f"t.py::test_{name}": (each, "") if each in known else ("failed", each) for name, each in found.items()}
    return Outcomes(tests, {"Adapter": built})


class TestReport:
    def test_two_runs_that_agree_are_right(self):
        lines, status = engine_tests.report(
            "engine 1.2", outcomes(one="passed", two="passed"), outcomes(one="passed", two="passed"), REASONS
        )
        assert lines[1] == "engine 1.2: 2 tests pass as they are, 2 over kvpool, 0 differ"
        assert lines[2:] == ["  Adapter was built 1 times"]
        assert status == 0

    def test_each_test_that_differs_is_named_with_its_reason(self):
        lines, status = engine_tests.report(
            "engine 1.2",
            outcomes(links="passed", links_too="passed", fine="passed"),
            outcomes(links="AttributeError: no attribute 'head'", links_too="x: no attribute 'head'", fine="passed"),
            REASONS,
        )
        assert lines[1] == "engine 1.2: 3 tests pass as they are, 1 over kvpool, 2 differ"
        assert lines[-3:] == ["  reads the links:", "    t.py::test_links", "    t.py::test_links_too"]
        assert status == 0

    @pytest.mark.parametrize(
        ("test", "error"),
        [
            ("other", "AttributeError: no attribute 'head'"),
            ("links", "AssertionError: a block was handed out twice"),
        ],
    )
    def test_a_difference_without_a_reason_is_named_with_its_error_and_is_a_failure(self, test, error):
        lines, status = engine_tests.report(
            "engine 1.2", outcomes(**{test: "passed"}), outcomes(**{test: f"{error}\nmore"}), REASONS
        )
        assert lines[-2:] == ["  WITHOUT A REASON:", f"    t.py::test_{test}: passed, over kvpool failed {error}"]
        assert status == 1

    def test_a_test_that_is_not_run_or_skipped_or_passes_over_kvpool_alone_differs_as_well(self):
        before = outcomes(gone="passed", left="passed", mended="an error", same="passed")
        after = outcomes(left="skipped", mended="passed", new="passed", same="passed")
        changes = engine_tests.differing(before, after, REASONS)
        assert changes == [
            ("t.py::test_gone", "passed, over kvpool not run", None),
            ("t.py::test_left", "passed, over kvpool skipped", None),
            ("t.py::test_mended", "failed, over kvpool passed", None),
            ("t.py::test_new", "not run, over kvpool passed", None),
        ]
        assert engine_tests.report("engine", before, after, REASONS)[1] == 1

    def test_what_fails_as_it_is_is_counted_by_its_cause_and_is_no_difference(self):
        both = outcomes(
            one="no   network\nfor this\nmore",
            two="no network\nfor this",
            three="no GPU",
            four="skipped",
            five="passed",
        )
        lines, status = engine_tests.report("engine 1.2", both, both, REASONS)
        assert lines[1:5] == [
            "engine 1.2: 1 tests pass as they are, 1 over kvpool, 0 differ",
            "  2 fail as they are, for want of what is not here: no network for this",
            "  1 fail as they are, for want of what is not here: no GPU",
            "  1 are skipped as they are",
        ]
        assert status == 0

    def test_an_adapter_that_was_never_built_has_shown_nothing(self):
        lines, status = engine_tests.report("engine", outcomes(one="passed"), outcomes(built=0, one="passed"))
        assert "never built" in lines[-1]
        assert status == 1
        assert engine_tests.report("engine", outcomes(one="passed"), Outcomes(outcomes(one="passed").tests))[1] == 1

    def test_no_test_that_passes_is_nothing_compared(self):
        for none in (outcomes(), outcomes(one="no module")):
            lines, status = engine_tests.report("engine", none, none)
            assert "nothing was compared" in lines[-1]
            assert status == 1


class TestRun:
    @pytest.fixture
    def runs(self, monkeypatch):
        """Run without engines: what each run of tests finds is what is put into the list, in turn."""
        runs, asked = [], []

        def run_suite(suite, adapters, tests=()):
            asked.append((suite.engine, adapters, list(tests)))
            return runs.pop(0)

        monkeypatch.setattr(engine_tests, "SUITES", (Suite("engine", (), ()), Suite("other", (), ())))
        monkeypatch.setattr(engine_tests, "pinned", lambda: {"engine": "1.2", "other": "3"})
        for name in ("prepare", "unpack"):
            monkeypatch.setattr(engine_tests, name, lambda *arguments: None)
        monkeypatch.setattr(engine_tests, "beside", lambda: 0)
        monkeypatch.setattr(engine_tests, "run_suite", run_suite)
        return runs, asked

    def test_each_engine_is_run_as_it_is_and_over_kvpool(self, runs, capsys):
        found, asked = runs
        found += [outcomes(one="passed")] * 4
        assert engine_tests.run() == 0
        assert asked == [("engine", False, []), ("engine", True, []), ("other", False, []), ("other", True, [])]
        assert "other 3: 1 tests pass as they are, 1 over kvpool, 0 differ" in capsys.readouterr().out

    def test_a_difference_without_a_reason_is_tried_again_both_ways(self, runs, capsys):
        found, asked = runs
        found += [
            outcomes(one="passed", waits="passed"),
            outcomes(one="passed", waits="timed out"),
            outcomes(waits="passed"),
            outcomes(built=0, waits="passed"),
        ]
        assert engine_tests.run(["engine"]) == 0
        assert asked[2:] == [("engine", False, ["t.py::test_waits"]), ("engine", True, ["t.py::test_waits"])]
        assert "2 tests pass as they are, 2 over kvpool, 0 differ" in capsys.readouterr().out

    def test_a_difference_that_repeats_is_a_failure_and_the_others_are_run_all_the_same(self, runs, capsys):
        found, _ = runs
        wrong = [outcomes(one="passed"), outcomes(one="a block twice")]
        found += [*wrong, *wrong, outcomes(two="passed"), outcomes(two="passed")]
        assert engine_tests.run() == 1
        out = capsys.readouterr().out
        assert "t.py::test_one: passed, over kvpool failed a block twice" in out
        assert "other 3: 1 tests pass" in out

    def test_a_failure_beside_the_engines_is_a_failure(self, runs, monkeypatch):
        found, _ = runs
        found += [outcomes(one="passed")] * 2
        monkeypatch.setattr(engine_tests, "beside", lambda: 1)
        assert engine_tests.run(["engine"]) == 1


class TestFetching:
    @pytest.fixture(autouse=True)
    def home(self, tmp_path, monkeypatch):
        monkeypatch.setattr(engine_tests, "HOME", tmp_path)
        monkeypatch.setattr(engine_tests, "python", lambda: sys.executable)
        return tmp_path

    @pytest.fixture
    def no_network(self, monkeypatch):
        """Have pip look for packages where there are none."""
        for name in [each for each in os.environ if each.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")

    def test_without_a_network_it_says_so_and_is_not_a_difference(self, no_network, monkeypatch, capsys):
        from history.__main__ import main

        monkeypatch.setattr(engine_tests, "prepare", lambda: None)
        assert main(["engine-tests"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("history: vllm==")
        assert "cannot be fetched: ERROR: No matching distribution found for vllm==" in error
        assert len(error.splitlines()) == 1

    def test_an_environment_that_cannot_be_filled_is_made_anew_the_next_time(self, no_network, home, monkeypatch):
        monkeypatch.setattr(engine_tests, "python", lambda: home / "env" / "bin" / "python")
        with pytest.raises(UsageError, match="the package index does not give what the engines' tests need: ERROR: "):
            engine_tests.prepare()
        assert not (home / "environment.txt").exists()

    def write_distribution(self, folder, setup="raise SystemExit('built')"):
        files = {
            "PKG-INFO": "Metadata-Version: 2.1\nName: small-engine\nVersion: 1.2\n",
            "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
            "setup.py": setup,
            "engine/books.py": "",
            "tests/test_books.py": "",
            "csrc/kernel.cu": "",
        }
        with tarfile.open(folder / "small_engine-1.2.tar.gz", "w:gz") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(f"small_engine-1.2/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))

    def test_a_source_distribution_is_fetched_without_being_built_and_unpacked_in_part(
        self, no_network, home, tmp_path_factory, monkeypatch
    ):
        index = tmp_path_factory.mktemp("index")
        self.write_distribution(index)
        monkeypatch.setenv("PIP_FIND_LINKS", str(index))
        monkeypatch.setattr(engine_tests, "pinned", lambda: {"small_engine": "1.2"})
        suite = Suite("small_engine", ("engine", "tests"), ())
        engine_tests.unpack(suite)
        folder = home / "small_engine"
        found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        assert found == ["engine/books.py", "tests/test_books.py", "version.txt"]
        # Once is enough, until the version is another.
        monkeypatch.delenv("PIP_FIND_LINKS")
        engine_tests.unpack(suite)
        monkeypatch.setattr(engine_tests, "pinned", lambda: {"small_engine": "1.3"})
        with pytest.raises(UsageError, match=r"small_engine==1\.3 cannot be fetched"):
            engine_tests.unpack(suite)

    def test_the_tests_find_the_sizes_of_a_model_where_they_look_for_what_was_downloaded(self, home):
        engine_tests._write_models({"maker/model-7B": {"hidden_size": 8}}, home)
        model = home / "models--maker--model-7B"
        revision = (model / "refs" / "main").read_text()
        assert json.loads((model / "snapshots" / revision / "config.json").read_text()) == {"hidden_size": 8}

    def test_tests_that_come_to_no_end_are_not_a_result(self, home):
        (home / "engine").mkdir()
        (home / "engine" / "conftest.py").write_text("import no_such_library\n")
        suite = Suite("engine", (), (".",))
        with pytest.raises(UsageError, match="engine came to no end: ModuleNotFoundError: No module named 'no_such_l"):
            engine_tests.run_suite(suite, adapters=False)


def test_every_engine_is_pinned_once_and_so_is_what_its_tests_import():
    files = [path.read_text().splitlines() for path in (engine_tests.PEERS, engine_tests.REQUIREMENTS)]
    names = [line.split("==")[0].lower() for file in files for line in file if line[:1] not in ("", "#")]
    assert len(set(names)) == len(names)
    assert {suite.engine for suite in engine_tests.SUITES} <= set(engine_tests.pinned())


class TestPlugin:
    def test_an_outcome_is_noted_for_each_test(self, tmp_path):
        (tmp_path / "test_some.py").write_text(
            "import pytest\n"
            "def test_passes(): pass\n"
            "def test_fails(): assert 1 == 2, 'one\\nand two'\n"
            "@pytest.mark.skip(reason='no GPU')\n"
            "def test_skips(): pass\n"
            "@pytest.fixture\n"
            "def broken():\n"
            "    yield\n"
            "    raise ValueError('left open')\n"
            "def test_ends_badly(broken): pass\n"
        )
        (tmp_path / "test_not_there.py").write_text("import no_such_library\n")
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        found = self.run(tmp_path)
        assert {name: outcome for name, (outcome, _) in found["outcomes"].items()} == {
            "test_not_there.py": "failed",
            "test_some.py::test_passes": "passed",
            "test_some.py::test_fails": "failed",
            "test_some.py::test_skips": "skipped",
            "test_some.py::test_ends_badly": "failed",
        }
        errors = {name: error for name, (_, error) in found["outcomes"].items()}
        assert "No module named 'no_such_library'" in errors["test_not_there.py"]
        assert errors["test_some.py::test_fails"].startswith("AssertionError: one")
        assert "no GPU" in errors["test_some.py::test_skips"]
        assert "left open" in errors["test_some.py::test_ends_badly"]
        assert found["built"] == {}

    def run(self, folder):
        written = folder / "outcomes.json"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), engine_adapters.OUTCOMES: str(written)}
        command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors"]
        subprocess.run(
            [*command, "-p", "no:cacheprovider", "-p", "history.engine_adapters"],
            cwd=folder, env=environment, check=False, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return json.loads(written.read_text())

    def test_a_class_is_replaced_wherever_it_was_imported_and_counts_how_often_it_is_built(self, monkeypatch):
        names = ("small_engine", "small_engine.books", "small_engine.user")
        modules = {name: types.ModuleType(name) for name in names}
        exec("class Books:\n    def __init__(self, size): self.size = size\nKept = Books", modules[names[1]].__dict__)
        modules[names[2]].Books = modules[names[1]].Books
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        code = "from small_engine.books import Books\nclass OurBooks(Books): pass\n"
        monkeypatch.setitem(adopting.EXAMPLES, "small books", code)
        monkeypatch.setattr(engine_adapters, "_built", type(engine_adapters._built)())
        engine_adapters.replace(Replacement("small_engine.books", "Books", "small books", "OurBooks"))
        assert engine_adapters._built == {"OurBooks": 0}
        assert modules[names[2]].Books(3).size == modules[names[1]].Books(3).size == 3
        assert modules[names[1]].Kept.__name__ == "Books"
        assert engine_adapters._built == {"OurBooks": 2}

    def test_what_is_replaced_is_defined_by_an_example(self):
        for engine, replacements in engine_adapters.REPLACEMENTS.items():
            assert engine in {suite.engine for suite in engine_tests.SUITES}
            for each in replacements:
                assert f"class {each.adapter}({each.name}):" in adopting.EXAMPLES[each.example]
                assert f"from {each.module} import " in adopting.EXAMPLES[each.example]
