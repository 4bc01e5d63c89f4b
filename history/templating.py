"""The templates of reports and pages, in ``history/templates``."""

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_TEMPLATES = Environment(
    loader=PackageLoader("history"),
    autoescape=lambda name: name is not None and name.endswith(".html"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)

# Longer than any sentence of ours; what somebody else wrote can be of any length.
_LONGEST = 300


def code(text: object) -> str:
    r"""Return text that somebody else wrote as code of Markdown, fit for a table: nothing in it means anything.

    >>> print(code("Fix | for <b>@you</b>"), code("`x`"), code("two\nlines"), code(""))
    `Fix \| for <b>@you</b>` `` `x` `` `two lines` ` `
    """
    line = _one_line(text).replace("|", r"\|")
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    space = " " if "`" in line or not line else ""
    return f"{fence}{space}{line}{space}{fence}" if line else "` `"


def plain(text: object) -> str:
    r"""Return text that somebody else has a part in as text of Markdown: none of it is markup, a link or a mention.

    >>> print(plain("<b>@you</b> see #1 [x](y) a|b *c* the_name __init__"))
    \<b\>@&#8203;you\</b\> see #&#8203;1 \[x\](y) a\|b \*c\* the_name \_\_init\_\_
    """
    line = re.sub(r"[\\`*<>|\[\]!&$~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", _one_line(text))
    # A space of no width: what looks like a mention, a number of an issue or an address is none.
    return re.sub(r"@|#|:(?=//)|(?<=www)\.", "\\g<0>&#8203;", line)


def _one_line(text: object) -> str:
    line = " ".join("".join(each if each.isprintable() else " " for each in str(text)).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


_TEMPLATES.filters |= {"code": code, "plain": plain}


def render(name: str, **values: Any) -> str:
    """Return the text of a template; what it names and is not given is an error."""
    return _TEMPLATES.get_template(name).render(values)
