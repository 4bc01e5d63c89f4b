"""Sorting page ids that come as a few ascending sequences, one behind the other."""

import cython


def sort_pages(pages, scratch, count):
    """Sort `count` distinct page ids ascending, by merging the ascending sequences that they are made of.

    `scratch` has room for as many. O(n log s) for s sequences.
    """
    source = pages
    target = scratch
    sequences: cython.longlong = 2
    passes: cython.longlong = 0
    while sequences > 1:
        written: cython.longlong = 0
        sequences = 0
        while written < count:
            left: cython.longlong = written
            middle: cython.longlong = left + 1
            while middle < count and source[middle] > source[middle - 1]:
                middle += 1
            right: cython.longlong = middle
            stop: cython.longlong = middle
            if stop < count:
                stop += 1
                while stop < count and source[stop] > source[stop - 1]:
                    stop += 1
            while written < stop:
                if right == stop or (left < middle and source[left] < source[right]):
                    target[written] = source[left]
                    left += 1
                else:
                    target[written] = source[right]
                    right += 1
                written += 1
            sequences += 1
        source, target = target, source
        passes += 1
    if passes % 2:
        i: cython.longlong
        for i in range(count):
            pages[i] = scratch[i]
