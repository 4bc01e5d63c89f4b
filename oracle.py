"""The allocators as a reader would write them down: lists of page ids, searched from the start."""


def runs(pages: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for page in pages:
        if found and page == found[-1][-1] + 1:
            found[-1].append(page)
        else:
            found.append([page])
    return found


class HostOracle:
    def __init__(self, num_pages: int, num_reserved: int = 0) -> None:
        self.free = list(range(num_reserved, num_pages))

    def take(self, n: int, policy: str) -> list[int] | None:
        if n > len(self.free):
            return None
        taken = getattr(self, policy)(n) if n else []
        if taken is None:
            return None
        gone = set(taken)
        self.free = [page for page in self.free if page not in gone]
        return taken

    def fifo(self, n: int) -> list[int]:
        return self.free[:n]

    def contiguous(self, n: int) -> list[int]:
        fitting = [run for run in runs(sorted(self.free)) if len(run) >= n]
        return self.fifo(n) if len(runs(self.fifo(n))) == 1 or not fitting else fitting[0][:n]

    def one_run(self, n: int) -> list[int] | None:
        fitting = [run for run in runs(sorted(self.free)) if len(run) >= n]
        return min(fitting, key=len)[:n] if fitting else None

    def fewest_runs(self, n: int) -> list[int]:
        unused, taken = runs(sorted(self.free)), []
        while len(taken) < n:
            need = n - len(taken)
            fitting = [run for run in unused if len(run) >= need]
            run = min(fitting, key=len) if fitting else max(unused, key=len)
            unused.remove(run)
            taken += run[:need]
        return sorted(taken)


class LaneOracle:
    def __init__(self, physical_pages: int, cp_size: int, selection: str) -> None:
        self.cp_size, self.selection = cp_size, selection
        self.free = [[lane + 1 + i * cp_size for i in range(physical_pages)] for lane in range(cp_size)]
        self.released: list[list[int]] = [[] for _ in range(cp_size)]

    def take(self, owners: list[int]) -> list[int] | None:
        queues = [self.choose(rank, owners.count(rank)) for rank in range(self.cp_size)]
        if any(queue is None for queue in queues):
            return None
        taken = [queues[rank].pop(0) for rank in owners]
        gone = set(taken)
        for sets in (self.free, self.released):
            sets[:] = [[page for page in lane if page not in gone] for lane in sets]
        return taken

    def choose(self, rank: int, n: int) -> list[int] | None:
        free, released = self.free[rank], self.released[rank]
        if self.selection == "contiguous":
            for i in range(len(free) - n + 1):
                if n and free[i + n - 1] - free[i] == (n - 1) * self.cp_size:
                    return free[i : i + n]
        return None if n > len(free + released) else (free + released)[:n]

    def give_back(self, pages: list[int]) -> None:
        for page in pages:
            lane = self.released[(page - 1) % self.cp_size]
            lane[:] = sorted([*lane, page])

    def merge_released(self) -> None:
        self.free = [sorted(free + released) for free, released in zip(self.free, self.released, strict=True)]
        self.released = [[] for _ in range(self.cp_size)]


class PagedOracle:
    """A list of free pages, and one of released ones that only sorted order uses; slots and page ids are lists."""

    def __init__(self, num_pages: int, page_size: int, order: str) -> None:
        self.num_pages, self.page_size, self.order = num_pages, page_size, order
        self.clear()

    def clear(self) -> None:
        self.free_pages, self.released = list(range(1, self.num_pages + 1)), []
        # Whether they came as slots, and what came, call by call.
        self.group: list[tuple[bool, list[int]]] | None = None

    def take(self, n: int, bound: int) -> list[int] | None:
        if self.order == "sorted" and bound > len(self.free_pages):
            self.free_pages, self.released = sorted(self.free_pages + self.released), []
        if n > len(self.free_pages):
            return None
        taken, self.free_pages = self.free_pages[:n], self.free_pages[n:]
        return taken

    def alloc(self, pages: int) -> list[int] | None:
        taken = self.take(pages, pages)
        return taken and [page * self.page_size + offset for page in taken for offset in range(self.page_size)]

    def extend(self, prefixes: list[int], lengths: list[int], lasts: list[int]) -> list[int] | None:
        requests = list(zip(prefixes, lengths, lasts, strict=True))
        new = sum(-(-length // self.page_size) - -(-prefix // self.page_size) for prefix, length, _ in requests)
        size = sum(lengths) - sum(prefixes)
        taken = self.take(new, size // self.page_size + len(requests) + 1 if self.page_size > 1 else new)
        if taken is None:
            return None
        slots = []
        for prefix, length, slot in requests:
            for place in range(prefix, length):
                slot = slot + 1 if place % self.page_size else taken.pop(0) * self.page_size
                slots.append(slot)
        return slots

    def decode(self, lengths: list[int], lasts: list[int]) -> list[int] | None:
        opens = [(length - 1) % self.page_size == 0 for length in lengths]
        taken = self.take(sum(opens), len(lengths))
        if taken is None:
            return None
        return [taken.pop(0) * self.page_size if new else last + 1 for new, last in zip(opens, lasts, strict=True)]

    def free(self, slots: list[int]) -> None:
        if self.group is not None:
            self.group.append((True, slots))
        else:
            self.give([slot // self.page_size for slot in slots], by_slots=True)

    def return_pages(self, page_ids: list[int]) -> None:
        if self.group is not None:
            self.group.append((False, page_ids))
        else:
            self.give(page_ids, by_slots=False)

    def give(self, pages: list[int], by_slots: bool) -> None:
        pages = list(dict.fromkeys(pages))
        if self.order == "sorted":
            self.released = sorted(self.released + pages)
        elif self.order == "fifo":
            self.free_pages = self.free_pages + pages
        else:
            self.free_pages = (sorted(pages) if by_slots else pages) + self.free_pages

    def begin(self) -> None:
        self.group = []

    def end(self) -> None:
        group, self.group = self.group or [], None
        pages = [
            (came_as_slots, value // self.page_size if came_as_slots else value)
            for came_as_slots, values in group
            for value in values
        ]
        for by_slots in [None] if self.order == "fifo" else [True, False]:
            self.give([page for came_as_slots, page in pages if by_slots in (None, came_as_slots)], by_slots is True)

    def free_sets(self) -> tuple[list[int], list[int]]:
        return self.free_pages, self.released
