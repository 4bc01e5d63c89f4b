"""See that an installed kvpool imports, is compiled, and hands out pages: ``python tests/smoke.py``."""

from kvpool import HostAllocator, OwnerLaneAllocator, RequestTokens, host, lanes, match_prefix


def main() -> None:
    for module in (host, lanes):
        assert not module.__file__.endswith(".py"), f"{module.__name__} is not compiled"
    pool = HostAllocator(8, page_size=16)
    slots = pool.alloc(32)
    assert slots.tolist() == list(range(32))
    assert pool.free(slots) == 32
    pool.check()
    ranks = OwnerLaneAllocator(physical_pages=8, page_size=16, cp_size=2)
    assert ranks.alloc_pages_with_owners([0, 1]).numel() == 32
    assert match_prefix(RequestTokens([1, 2, 3]), [1, 2, 4], page_size=1) == 2
    print(f"kvpool works from {host.__file__}")


if __name__ == "__main__":
    main()
