import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from history.command_line import _parser
from history.paths import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMMANDS = next(action for action in _parser()._actions if action.dest == "command").choices


def load(path: Path) -> dict:
    found = yaml.safe_load(path.read_text())
    found["on"] = found.pop(True)  # YAML 1.1 reads "on" as a truth value
    return found


def scripts(workflow: dict) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


def make_targets(text: str) -> set[str]:
    return set(re.findall(r"(?:^#?\s*|^\$ |`|&& |\$\()make ([a-z-]+)", text, re.MULTILINE))


def history_calls(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of ``-m history`` that a script calls, and their options."""
    found = re.findall(r"-m history ([\w-]+)((?:[^\n|;&]|&(?!&))*)", text)
    return [(command, re.findall(r"(?<=\s)(--[a-z-]+)", rest)) for command, rest in found]


def test_there_are_workflows_for_tests_comparison_comment_history_and_wheels():
    assert {path.stem for path in WORKFLOWS} == {"tests", "compare", "comment", "nightly", "wheels"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_the_parts_that_one_needs(path):
    workflow = load(path)
    assert {"name", "on", "permissions", "jobs"} <= workflow.keys()
    assert workflow["name"] == path.stem
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert "run" in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_only_what_exists(path):
    for script in scripts(load(path)):
        subprocess.run(["bash", "-n"], input=re.sub(r"\$\{\{.*?\}\}", "x", script), text=True, check=True)
        assert make_targets(script) <= TARGETS
        for file in re.findall(r"\bbash (\S+)", script):
            assert (ROOT / file).is_file()
        for command, options in history_calls(script):
            assert set(options) <= COMMANDS[command]._option_string_actions.keys()


def test_the_makefile_calls_only_commands_that_exist():
    for command, options in history_calls(MAKEFILE):
        assert set(options) <= COMMANDS[command]._option_string_actions.keys()
    assert set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()) == TARGETS
    assert make_targets(MAKEFILE) <= TARGETS


def test_the_documents_call_only_what_exists():
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        assert make_targets(text) <= TARGETS, path.name
        for command, options in history_calls(text):
            assert command in COMMANDS, path.name
            assert set(options) <= COMMANDS[command]._option_string_actions.keys(), path.name


def test_tests_run_on_every_python_that_the_package_supports():
    job = load(FOLDER / "tests.yml")["jobs"]["tests"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert load(FOLDER / "tests.yml")["on"].keys() == {"push", "pull_request"}


def test_the_wheel_is_tested_on_the_oldest_and_the_newest_python_without_the_sources():
    job = load(FOLDER / "tests.yml")["jobs"]["wheel"]
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert job["strategy"]["matrix"]["python"] == [oldest, "3.13"]
    script = "\n".join(step.get("run", "") for step in job["steps"])
    assert script.index("pip wheel") < script.index("rm -r kvpool") < script.index("-m pytest tests/kvpool")


def test_the_sanitizers_have_a_job_of_their_own():
    assert scripts({"jobs": {"sanitize": load(FOLDER / "tests.yml")["jobs"]["sanitize"]}}) == ["make sanitize"]


def test_a_tag_builds_a_wheel_for_every_python_and_machine_and_tries_each():
    workflow = load(FOLDER / "wheels.yml")
    assert workflow["on"]["push"] == {"tags": ["v*"]}
    runners = {each["runner"] for each in workflow["jobs"]["wheels"]["strategy"]["matrix"]["include"]}
    assert runners == {"ubuntu-latest", "ubuntu-24.04-arm", "macos-latest"}
    built = PROJECT["tool"]["cibuildwheel"]
    oldest = int(PROJECT["project"]["requires-python"].removeprefix(">=3."))
    assert built["build"] == [f"cp3{minor}-*" for minor in range(oldest, 14)]
    assert (ROOT / built["test-command"].removeprefix("python {project}/")).is_file()


def test_what_the_wheels_are_tried_with_passes():
    subprocess.run([sys.executable, "-m", "tests.smoke"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def test_the_comparison_runs_for_its_label_only_and_may_write_nothing():
    workflow = load(FOLDER / "compare.yml")
    assert "'run-benchmark'" in workflow["jobs"]["compare"]["if"]
    assert workflow["permissions"] == {"contents": "read"}
    called = [call for script in scripts(workflow) for call in history_calls(script)]
    assert called == [("compare", ["--exact", "--output"]), ("compare", ["--output"])]
    # Through make, a regression could not be told from a comparison that failed.
    assert all("compare" not in make_targets(script) for script in scripts(workflow))


def test_the_comment_follows_the_comparison_and_believes_nothing_that_it_left():
    workflow = load(FOLDER / "comment.yml")
    assert workflow["on"]["workflow_run"]["workflows"] == [load(FOLDER / "compare.yml")["name"]]
    assert workflow["permissions"] == {"actions": "read", "contents": "read", "pull-requests": "write"}
    (job,) = workflow["jobs"].values()
    (checkout,) = [step for step in job["steps"] if "uses" in step]
    assert checkout["with"]["ref"] == "${{ github.event.repository.default_branch }}"
    assert checkout["with"]["persist-credentials"] is False
    download, write = scripts(workflow)
    # Beside the checkout, of which the next step runs a module.
    assert '--dir "$RUNNER_TEMP/left"' in download
    assert 'number=$(python3 -m history.comment "$RUNNER_TEMP/left/report.md"' in write
    # Names of branches are a fork's: they reach a script as variables, never as text of it.
    assert all("${{" not in script for script in scripts(workflow))


def test_no_script_has_what_others_chose_as_its_text():
    for path in WORKFLOWS:
        for script in scripts(load(path)):
            assert not re.search(r"\$\{\{[^}]*(head|title|body|ref|label|user|sender)", script), path.name


def test_the_history_runs_every_night_and_is_published():
    workflow = load(FOLDER / "nightly.yml")
    assert workflow["on"]["schedule"]
    steps = workflow["jobs"]["history"]["steps"]
    (upload,) = [step for step in steps if step.get("uses", "").startswith("actions/upload-pages-artifact@")]
    assert upload["with"]["path"] == ".asv/html"
    assert any(step.get("uses", "").startswith("actions/deploy-pages@") for step in steps)


def test_continuous_integration_is_a_script_that_ends_with_the_tests():
    script = (ROOT / ".ci" / "run").read_text()
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert script.rstrip().splitlines()[-1] == "make test"
    last = re.search(r"^test:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[1].rstrip().splitlines()[-1]
    assert last.strip() == "$(RUN) -m pytest"
