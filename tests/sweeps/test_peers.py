"""The peers' command: which engines' classes are there."""

from typing import Any

import pytest

from benchmarks import peers
from sweeps.peers import main


@pytest.mark.parametrize(("missing", "status"), [("vllm", 1), (None, 0)])
def test_classes_that_are_there_are_listed_and_an_engine_that_is_not_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, missing: str | None, status: int
) -> None:
    def peer_class(engine: str, name: str) -> type:
        if engine == missing:
            raise peers.MissingPeerError(f"{engine} is not installed")
        return object

    monkeypatch.setattr(peers, "peer_class", peer_class)
    monkeypatch.setattr(peers, "version", lambda engine: "1.2")
    assert main([]) == status
    there = [engine for engine in peers.SOURCES if engine != missing]
    listed = [
        f"{engine} 1.2: {module}.{name}" for engine in there for module, name in peers.SOURCES[engine].classes.values()
    ]
    said = [f"n/a: {missing} is not installed"] if missing else []
    assert capsys.readouterr().out.splitlines() == listed + said
