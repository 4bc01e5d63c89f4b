"""What a run of somebody else's code can have commented: a report, on the pull request that it was of."""

import json

import pytest

from history import UsageError, comment

REPORT = """# `main` → `fix \\| it`

**Not measured: HEAD (0123abcd) cannot be built: \\_\\_init\\_\\_ is not an\\_attribute of the\\_class.**

BASE is where HEAD branched off from main.

## Slower

`bench_host.Free.time_free`

| `pages` | BASE | HEAD | HEAD / BASE |
| --- | ---: | ---: | ---: |
| ``a`b`` | 1.00 μs | 2.00 μs | 2.00 |

- `x`, 1 case:
  on HEAD with `1, '@team'`: `ValueError: <b>`
"""


def test_a_report_passes():
    comment.check(REPORT)


@pytest.mark.parametrize(
    "line",
    [
        "@team look",
        "<img src=x>",
        "<!-- hidden",
        "[text](somewhere)",
        "[1]: somewhere",
        "![image](somewhere)",
        "![image][1]",
        "https://somewhere",
        "see http://somewhere",
        "www.somewhere.com",
        "me@somewhere.com",
        "#12",
        "# A title",
        "### A title",
        "owner/repository#12",
        "*strong*",
        "**No regression: all is well.**",
        "__strong__",
        "~~gone~~",
        "> said",
        "```",
        "`code",
        "``code`",
        "`a` ` <b> ``",
        "\\`<b>`",
        "`a\\` <b>`",
        "| a | `b | <i>c` |",
        "| a | b",
        "&lt;b&gt;",
        "&#64;team",
        "$x$",
        "- [ ] done",
        "* item",
        "## [x](y)",
        "a\rb",
        "a\u202eb",
        "a\x00b",
        "a\u2028b",
    ],
)
def test_a_line_that_is_more_than_text_is_refused(line):
    with pytest.raises(UsageError, match=r"line 5 is none of a report"):
        comment.check("\n".join([*REPORT.split("\n")[:4], line, ""]))


@pytest.mark.parametrize("line", ["`@team <b> [x](y) https://z #1 & **`", "| `a \\| <b>` |", "- `` ` @you ` ``", "  a"])
def test_in_code_everything_is_text(line):
    comment.check("\n".join([*REPORT.split("\n")[:4], line, ""]))


@pytest.mark.parametrize("changed", [0, 2])
def test_the_first_lines_are_those_of_a_report(changed):
    lines = REPORT.split("\n")
    lines[changed] = "Merge this: all is well."
    with pytest.raises(UsageError, match=f"line {changed + 1} is none of a report"):
        comment.check("\n".join(lines))


def test_a_report_that_is_too_long_or_cut_off_is_refused():
    with pytest.raises(UsageError, match="too long"):
        comment.check(REPORT + "a\n" * comment.LONGEST)
    for text in ("", "# `main` → `x`\n"):
        with pytest.raises(UsageError):
            comment.check(text)


RUN = {
    "head_repository": {"full_name": "fork/kvpool"},
    "head_branch": "fix",
    "head_sha": "0123abcd" * 5,
    "html_url": "https://github.com/owner/kvpool/actions/runs/1",
}


def pull(number, repository="fork/kvpool", branch="fix", sha=RUN["head_sha"]):
    return {
        "number": number,
        "head": {"repo": repository and {"full_name": repository}, "ref": branch, "sha": sha},
    }


def test_the_pull_request_is_the_one_whose_head_was_measured():
    pulls = [pull(1, "owner/kvpool"), pull(2, branch="other"), pull(3, sha="f" * 40), pull(4, None), pull(5)]
    assert comment.pull_request({"workflow_run": RUN}, pulls) == 5


@pytest.mark.parametrize("pulls", [[], [pull(1, sha="f" * 40)], [pull(1), pull(2)]])
def test_where_it_is_not_known_there_is_no_comment(pulls):
    with pytest.raises(UsageError, match=rf"^{len(pulls) if len(pulls) > 1 else 0} open pull requests"):
        comment.pull_request({"workflow_run": RUN}, pulls)


@pytest.fixture
def left(tmp_path, monkeypatch):
    """What a run has left, and what GitHub says."""
    (tmp_path / "report.md").write_text(REPORT)
    (tmp_path / "number.txt").write_text("1\n")
    (tmp_path / "pulls.json").write_text(json.dumps([pull(7)]))
    (tmp_path / "event.json").write_text(json.dumps({"workflow_run": RUN}))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
    return tmp_path


def call(folder):
    return comment.main(*(str(folder / name) for name in ("report.md", "pulls.json", "comment.md")))


def test_the_comment_is_the_report_and_where_it_is_from(left, capsys):
    assert call(left) == 0
    assert capsys.readouterr().out == "7\n"
    text = (left / "comment.md").read_text()
    assert text.startswith(REPORT)
    assert text.endswith(f"\nFigures as the [run]({RUN['html_url']}) of 0123abcd has left them.\n")


def test_what_is_none_of_a_report_is_not_commented(left, capsys):
    for text in (REPORT + "@team\n", "\ud800"):
        (left / "report.md").write_text(text, errors="surrogatepass")
        assert call(left) == 2
    (left / "report.md").unlink()
    assert call(left) == 2
    (left / "report.md").symlink_to("/etc/passwd")
    assert call(left) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("no comment: ") == 4
    assert not (left / "comment.md").exists()
