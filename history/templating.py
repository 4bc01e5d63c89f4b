"""The templates of reports and pages, in ``history/templates``."""

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


def render(name: str, **values: Any) -> str:
    """Return the text of a template; what it names and is not given is an error."""
    return _TEMPLATES.get_template(name).render(values)
