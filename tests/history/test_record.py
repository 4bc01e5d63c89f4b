"""What is recorded in results/, and what the documents say of it."""

import doctest
import re
import subprocess

import pytest

from history import records
from history.machine import file_name
from history.paths import MILESTONES, ROOT
from history.site.families import FAMILIES

RESULTS = ROOT / "results"
RECORDS = records.load(RESULTS)
recorded = pytest.mark.skipif(not RECORDS, reason="no history is recorded yet")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def whole_repository():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs a git repository with its whole history")


@recorded
@pytest.mark.usefixtures("whole_repository")
def test_every_recorded_commit_is_an_ancestor_of_head():
    lost = {each.commit for each in RECORDS if git("merge-base", "--is-ancestor", each.commit, "HEAD").returncode}
    assert not lost, f"rewritten commits: {sorted(lost)}; measure the milestones again"


@recorded
@pytest.mark.usefixtures("whole_repository")
def test_every_milestone_is_a_commit_that_is_recorded():
    from history import milestones

    wanted = {git("rev-parse", f"{each.commit}^{{commit}}").stdout.strip() for each in milestones.read(MILESTONES)}
    assert wanted <= {each.commit for each in RECORDS}


@recorded
def test_nothing_recorded_has_failed():
    assert {str(case) for each in RECORDS for case in each.failed} == set()


@recorded
def test_recorded_names_say_nothing_of_host_or_kernel():
    for name in {each.machine for each in RECORDS}:
        assert re.fullmatch(r"[A-Za-z0-9.-]+-\d+-cores?-(\d+GiB|unknown-memory)", name)
        assert name == file_name(name)


@recorded
def test_the_front_page_shows_cases_that_are_recorded():
    known = {case for each in RECORDS for case in each.figures}
    for family in FAMILIES:
        for row in family.rows:
            assert {row.case, row.beside or row.case} <= known


@recorded
def test_the_site_is_small_enough_to_keep_in_git():
    assert sum(path.stat().st_size for path in (ROOT / "html").rglob("*")) < 15e6


def test_the_examples_of_the_readme_run():
    found = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 3
    assert found.failed == 0


def test_links_between_documents_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)", path.read_text()):
            if "://" not in link:
                assert (path.parent / link).exists(), f"{path.name} links to {link}"
