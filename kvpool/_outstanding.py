"""Frees that are to be carried out later."""

import cython


@cython.final
@cython.trashcan(True)
@cython.cclass
class Outstanding:
    """A free whose slots may still be on their way, or the end of a group that has such frees; linked in call order."""

    def __init__(self, values, arrival, by_slots: cython.bint, partial: cython.bint):
        self.values = values
        self.arrival = arrival
        self.by_slots = by_slots
        self.partial = partial
        self.group = None
        self.next = None
