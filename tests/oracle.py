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
