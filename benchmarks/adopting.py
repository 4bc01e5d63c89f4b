"""The examples of docs/adopting.md as they stand there: what a reader would paste is what is tested and measured."""

import functools
import re
from pathlib import Path
from types import SimpleNamespace

from benchmarks import peers

TEXT = (Path(__file__).parent.parent / "docs" / "adopting.md").read_text()
EXAMPLES: dict[str, str] = dict(re.findall(r"<!-- example: (.*?) -->\n```python\n(.*?)```", TEXT, re.DOTALL))


def run(name: str) -> SimpleNamespace:
    """Run an example and return what it defines, where its engine can be imported as it is."""
    names: dict[str, object] = {}
    exec(compile(EXAMPLES[name], f"docs/adopting.md ({name})", "exec"), names)
    return SimpleNamespace(**names)


@functools.cache
def beside_peers(name: str) -> SimpleNamespace:
    """Run an example beside the classes that `peers` imports; MissingPeerError where its engine is not installed."""
    engine = name.split()[0]
    for each in peers.SOURCES[engine].classes:
        peers.peer_class(engine, each)
    return run(name)
