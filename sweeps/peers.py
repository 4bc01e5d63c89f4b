"""`python -m benchmarks peers`: which engines' classes can be measured here."""

from benchmarks import peers
from sweeps.common import Parser


def main(argv: list[str]) -> int:
    """Say which engines are there; return 1 where one is not."""
    Parser("peers", "Say which engines' allocators and token containers can be measured here.").parse_args(argv)
    missing = {}
    for engine, source in peers.SOURCES.items():
        for name, (module, _) in source.classes.items():
            try:
                peers.peer_class(engine, name)
                print(f"{engine} {peers.version(engine)}: {module}.{name}")
            except peers.MissingPeerError as error:
                missing[f"n/a: {error}"] = None
    print("\n".join(missing), end="\n" if missing else "")
    return 1 if missing else 0
