"""A set of free pages that answers "where is a run of n" without a walk over all pages."""

import cython

if not cython.compiled:
    from kvpool._plain import (
        FIRST_BIT,
        FULL_WORD,
        copy_bytes,
        copy_words,
        leading_zeros,
        new_bytes,
        new_summaries,
        new_words,
        ones,
        trailing_zeros,
    )

    WORD_PAGES, CHUNK_WORDS, CHUNK_PAGES, LONG_RUN = 64, 8, 512, 64
    TOO_HIGH, LENGTHS_UNKNOWN, CHANGED = 1, 2, 3


@cython.no_gc
@cython.final
@cython.cclass
class RunIndex:
    """A set of page ids from 0 to `num_pages - 1`: a bit a page, and a tree of summaries over chunks of 512 pages.

    Adding:    `add_run`, `add_pages`, `add_words`, `add_unmeasured`, `mark`, `unmark`
    Removing:  `remove_run`, `remove_pages`, `remove_largest_runs`, `remove_all`
    Searching: `lowest_run`, `smallest_run`, `longest_run`, `lowest_pages`
    Reading:   `holds`, `free` (pages in the set), `count_runs`, `copy_words_to`, `state`

    A summary is never too low, and its longest run and those at its ends are exact unless its chunk is flagged. Taking
    a page out only flags its chunk; adding one raises the summaries that its run outgrows. A search trusts a summary
    that says no and recomputes the flagged ones that say yes, so that it pays for few of the chunks that have changed
    since the last. `lengths`, which say where the smallest run that is long enough begins, may name lengths that are
    gone: a chunk that disappoints is measured anew.

    Node 1 of `summaries` is the root, node i has the children 2 i and 2 i + 1, chunk c is node `leaves + c`. `steps`
    counts the summaries that were looked at or recomputed, for tests of what a call costs. Arguments are trusted.
    """

    def __init__(self, num_pages: cython.longlong):
        leaves: cython.longlong = 1
        chunks: cython.longlong = (num_pages + CHUNK_PAGES - 1) // CHUNK_PAGES
        while leaves < chunks:
            leaves *= 2
        self.arrays = []
        self.num_pages = num_pages
        self.chunks = chunks
        self.leaves = leaves
        self.free = 0
        self.steps = 0
        self.unknown_from = chunks
        self.unknown_to = 0
        self.words = new_words(self.arrays, chunks * CHUNK_WORDS)
        self.flags = new_bytes(self.arrays, chunks)
        self.summaries = new_summaries(self.arrays, 2 * leaves)

    def holds(self, page):
        """Tell whether a page is in the set."""
        return (self.words[page // WORD_PAGES] >> (page % WORD_PAGES)) & 1

    def add_run(self, start, stop):
        """Add the pages from `start` to `stop`, none of them in the set. O(pages / 64 + log of the chunks)."""
        chunk: cython.longlong
        self.free += stop - start
        if stop - start == 1 and self._add_alone(start):
            return
        self._write(start, stop, True)
        for chunk in range(start // CHUNK_PAGES, (stop - 1) // CHUNK_PAGES + 1):
            self._raise_summary(chunk, max(start, chunk * CHUNK_PAGES), min(stop, (chunk + 1) * CHUNK_PAGES))
        before: cython.longlong = self._free_before(start)
        # Where there are so many before it, the run was long already.
        if before < LONG_RUN:
            self._note_length(start - before, before + stop - start + self._free_from(stop))

    def _add_alone(self, page):
        """Add a page without free neighbours, whose run outgrows no summary that knows of any; False for another."""
        bit: cython.size_t = page % WORD_PAGES
        bits: cython.ulonglong = self.words[page // WORD_PAGES]
        leaf: cython.size_t = self.leaves + page // CHUNK_PAGES
        if bit == 0 or bit == WORD_PAGES - 1 or bits & (5 * FIRST_BIT << (bit - 1)) or not self.summaries[leaf].longest:
            return False
        self.words[page // WORD_PAGES] = bits | (FIRST_BIT << bit)
        if not self.summaries[leaf].lengths & 1:
            self._note_length(page, 1)
        return True

    def add_pages(self, pages, count):
        """Add pages, none of them in the set, each stretch of ascending ones as a run."""
        first: cython.longlong = 0
        i: cython.longlong
        for i in range(1, count + 1):
            if i == count or pages[i] != pages[i - 1] + 1:
                self.add_run(pages[first], pages[i - 1] + 1)
                first = i

    def add_words(self, words):
        """Add the pages of another set's `words`, none of them in this one. O(chunks)."""
        chunk: cython.longlong
        i: cython.longlong
        for chunk in range(self.chunks):
            added: cython.longlong = 0
            for i in range(chunk * CHUNK_WORDS, (chunk + 1) * CHUNK_WORDS):
                added += ones(words[i])
                self.words[i] |= words[i]
            if added:
                self.free += added
                self.flags[chunk] |= LENGTHS_UNKNOWN
                self._forget_lengths(chunk, chunk)
                if self._make_exact(chunk):
                    self._climb(chunk)

    def add_unmeasured(self, page):
        """Add a page, not in the set unless marked, and leave its chunk to be measured by the next search."""
        chunk: cython.longlong = page // CHUNK_PAGES
        leaf: cython.longlong = self.leaves + chunk
        self.mark(page)
        self.free += 1
        self.flags[chunk] = CHANGED
        self._forget_lengths(chunk, chunk)
        if self.summaries[leaf].longest < CHUNK_PAGES or self.summaries[leaf].leading < CHUNK_PAGES:
            self.summaries[leaf].leading = CHUNK_PAGES
            self.summaries[leaf].longest = CHUNK_PAGES
            self.summaries[leaf].trailing = CHUNK_PAGES
            self._climb(chunk)

    def mark(self, page):
        """Set a page's bit and nothing else, so that `holds` knows it: `add_unmeasured` or `unmark` has to follow."""
        self.words[page // WORD_PAGES] |= FIRST_BIT << (page % WORD_PAGES)

    def unmark(self, page):
        """Take the mark of a page back."""
        self.words[page // WORD_PAGES] &= FULL_WORD ^ (FIRST_BIT << (page % WORD_PAGES))

    def copy_words_to(self, words):
        """Write the set's bits to `words`, 64 pages a word, the lowest in the lowest bit."""
        i: cython.longlong
        for i in range(self.chunks * CHUNK_WORDS):
            words[i] = self.words[i]

    def remove_run(self, start, stop):
        """Take out the pages from `start` to `stop`, all of them in the set."""
        chunk: cython.longlong
        self._write(start, stop, False)
        self.free -= stop - start
        for chunk in range(start // CHUNK_PAGES, (stop - 1) // CHUNK_PAGES + 1):
            self.flags[chunk] |= TOO_HIGH
        rest: cython.longlong = self._free_before(start)
        if 0 < rest < LONG_RUN:
            self._note_length(start - rest, rest)
        rest = self._free_from(stop)
        if rest > 0:
            self._note_length(stop, rest)

    def remove_pages(self, pages, count):
        """Take out pages, all of them in the set."""
        i: cython.longlong
        page: cython.size_t
        lowest: cython.longlong = self.num_pages
        highest: cython.longlong = -1
        for i in range(count):
            page = pages[i]
            self.words[page // WORD_PAGES] &= FULL_WORD ^ (FIRST_BIT << (page % WORD_PAGES))
            self.flags[page // CHUNK_PAGES] = CHANGED
            lowest = min(lowest, pages[i])
            highest = max(highest, pages[i])
        self.free -= count
        if count > 0:
            self._forget_lengths(lowest // CHUNK_PAGES, highest // CHUNK_PAGES)

    def remove_all(self):
        """Make the set empty."""
        i: cython.longlong
        for i in range(self.chunks * CHUNK_WORDS):
            self.words[i] = 0
        for i in range(self.chunks):
            self.flags[i] = 0
        for i in range(2 * self.leaves):
            self.summaries[i].leading = 0
            self.summaries[i].longest = 0
            self.summaries[i].trailing = 0
            self.summaries[i].lengths = 0
        self.free = 0

    def lowest_run(self, length):
        """Return where the lowest-addressed free run of at least `length` pages starts, or -1.

        Goes down the tree by what the summaries allow; where one turns out to have been too high, starts again.
        """
        node: cython.longlong
        first: cython.longlong
        half: cython.longlong
        start: cython.longlong
        while self.summaries[1].longest >= length:
            node = 1
            first = 0
            start = -1
            half = self.leaves * CHUNK_PAGES // 2
            while node < self.leaves and start < 0:
                self.steps += 1
                if self.summaries[2 * node].longest >= length:
                    node = 2 * node
                elif self.summaries[2 * node].trailing + self.summaries[2 * node + 1].leading >= length:
                    start = first + half - self.summaries[2 * node].trailing
                else:
                    node = 2 * node + 1
                    first += half
                half //= 2
            if start >= 0:
                if not self._lowered(start, start + length):
                    return start
            elif not self._lowered(first, first + CHUNK_PAGES):
                start = self._next_free(first, first + CHUNK_PAGES)
                end: cython.longlong = self._next_taken(start, first + CHUNK_PAGES)
                while end - start < length:
                    start = self._next_free(end, first + CHUNK_PAGES)
                    end = self._next_taken(start, first + CHUNK_PAGES)
                return start
        return -1

    def smallest_run(self, length):
        """Return where the smallest free run of at least `length` pages starts (the lowest on a tie), or -1.

        O(log of the chunks) for a run of less than 64 pages, once the chunks that have changed are measured; a pass
        over all summaries for a longer one.
        """
        self._measure_unknown()
        fitting: cython.ulonglong = FULL_WORD ^ ((FIRST_BIT << (min(length, LONG_RUN) - 1)) - 1)
        while self.summaries[1].lengths & fitting:
            shortest: cython.longlong = trailing_zeros(self.summaries[1].lengths & fitting) + 1
            start: cython.longlong = self._lowest_of_length(shortest)
            if start >= 0:
                return start if shortest < LONG_RUN else self._smallest_long_run(max(length, LONG_RUN))
        return -1

    def remove_largest_runs(self, pages, count):
        """Take out the largest runs, the lowest on a tie, each whole, and write their pages into `pages`.

        All of one length, until fewer than that are left of `count` pages, which no run holds; return how many pages.
        """
        taken: cython.longlong = 0
        self._measure_unknown()
        while taken == 0:
            length: cython.longlong = WORD_PAGES - leading_zeros(self.summaries[1].lengths)
            if length < LONG_RUN:
                taken = self._remove_runs_of(length, pages, count)
            elif self._lowest_of_length(length) >= 0:
                length = self.longest_run()
                start: cython.longlong = self.lowest_run(length)
                self.remove_run(start, start + length)
                for taken in range(length):
                    pages[taken] = start + taken
                taken = length
        return taken

    def longest_run(self):
        """Return the length of the longest free run."""
        while self.summaries[1].longest > 0 and self.lowest_run(self.summaries[1].longest) < 0:
            pass
        return self.summaries[1].longest

    def count_runs(self):
        """Return in how many runs the set lies. O(pages / 64)."""
        runs: cython.longlong = 0
        # The last page of the word before, in the lowest bit.
        before: cython.ulonglong = 0
        i: cython.longlong
        for i in range(self.chunks * CHUNK_WORDS):
            bits: cython.ulonglong = self.words[i]
            runs += ones(bits & (((bits << 1) | before) ^ FULL_WORD) & FULL_WORD)
            before = bits >> (WORD_PAGES - 1)
        return runs

    def lowest_pages(self, pages, count):
        """Write the lowest pages of the set into `pages`, `count` at most; return how many there were."""
        found: cython.longlong = min(count, self.free)
        word: cython.longlong = self.lowest_run(1) // WORD_PAGES if found > 0 else 0
        written: cython.longlong = 0
        while written < found:
            bits: cython.ulonglong = self.words[word]
            while bits and written < found:
                pages[written] = word * WORD_PAGES + trailing_zeros(bits)
                bits &= bits - 1
                written += 1
            word += 1
        return found

    def state(self):
        """Return a copy of all that the set holds, for a check."""
        summaries: list = [None] * (2 * self.leaves)
        node: cython.longlong
        for node in range(2 * self.leaves):
            summaries[node] = (
                self.summaries[node].leading,
                self.summaries[node].longest,
                self.summaries[node].trailing,
                self.summaries[node].lengths,
            )
        return {
            "num_pages": self.num_pages,
            "chunks": self.chunks,
            "leaves": self.leaves,
            "free": self.free,
            "words": copy_words(self.words, self.chunks * CHUNK_WORDS),
            "flags": copy_bytes(self.flags, self.chunks),
            "summaries": summaries,
        }

    def _write(self, start, stop, free):
        """Set the bits of the pages from `start` to `stop`, word by word."""
        page: cython.longlong = start
        while page < stop:
            bit: cython.longlong = page % WORD_PAGES
            bits: cython.longlong = min(stop - page, WORD_PAGES - bit)
            mask: cython.ulonglong = (FULL_WORD >> (WORD_PAGES - bits)) << bit
            if free:
                self.words[page // WORD_PAGES] |= mask
            else:
                self.words[page // WORD_PAGES] &= FULL_WORD ^ mask
            page += bits

    def _free_before(self, page):
        """Return how many pages right before `page` are free; 64 stands for more."""
        bit: cython.size_t = page % WORD_PAGES
        word: cython.size_t = page // WORD_PAGES
        window: cython.ulonglong = (self.words[word] << (WORD_PAGES - bit)) & FULL_WORD if bit > 0 else 0
        if word > 0:
            window |= self.words[word - 1] >> bit
        return leading_zeros(window ^ FULL_WORD)

    def _free_from(self, page):
        """Return how many pages from `page` on are free; 64 stands for more."""
        bit: cython.size_t = page % WORD_PAGES
        word: cython.size_t = page // WORD_PAGES
        stop: cython.size_t = self.chunks * CHUNK_WORDS
        if word >= stop:
            return 0
        window: cython.ulonglong = self.words[word] >> bit
        if bit > 0 and word + 1 < stop:
            window |= (self.words[word + 1] << (WORD_PAGES - bit)) & FULL_WORD
        return trailing_zeros(window ^ FULL_WORD)

    def _next_free(self, page, stop):
        """Return the first free page from `page` on, or `stop`."""
        while page < stop:
            bits: cython.ulonglong = self.words[page // WORD_PAGES] >> (page % WORD_PAGES)
            if bits:
                return min(stop, page + trailing_zeros(bits))
            page += WORD_PAGES - page % WORD_PAGES
        return stop

    def _next_taken(self, page, stop):
        """Return the first page from `page` on that is not free, or `stop`."""
        while page < stop:
            bits: cython.ulonglong = (self.words[page // WORD_PAGES] ^ FULL_WORD) >> (page % WORD_PAGES)
            if bits:
                return min(stop, page + trailing_zeros(bits))
            page += WORD_PAGES - page % WORD_PAGES
        return stop

    def _raise_summary(self, chunk, start, stop):
        """Raise a chunk's summary to the run that the pages from `start` to `stop` have become part of there."""
        first: cython.longlong = chunk * CHUNK_PAGES
        leaf: cython.longlong = self.leaves + chunk
        while start > first:
            bit: cython.longlong = (start - 1) % WORD_PAGES
            bits: cython.ulonglong = self.words[(start - 1) // WORD_PAGES] << (WORD_PAGES - 1 - bit)
            free: cython.longlong = min(bit + 1, leading_zeros((bits & FULL_WORD) ^ FULL_WORD))
            start -= free
            if free <= bit:
                break
        stop = self._next_taken(stop, first + CHUNK_PAGES)
        raised: cython.bint = False
        if start == first and stop - start > self.summaries[leaf].leading:
            self.summaries[leaf].leading = stop - start
            raised = True
        if stop - start > self.summaries[leaf].longest:
            self.summaries[leaf].longest = stop - start
            raised = True
        if stop == first + CHUNK_PAGES and stop - start > self.summaries[leaf].trailing:
            self.summaries[leaf].trailing = stop - start
            raised = True
        if raised:
            self._climb(chunk)

    def _note_length(self, start, length):
        """Say that a run of `length` pages, or of LONG_RUN or more, begins at `start`."""
        named: cython.ulonglong = FIRST_BIT << (min(length, LONG_RUN) - 1)
        node: cython.longlong = self.leaves + start // CHUNK_PAGES
        while node > 0 and not self.summaries[node].lengths & named:
            self.steps += 1
            self.summaries[node].lengths |= named
            node //= 2

    def _make_exact(self, chunk):
        """Make the runs in a chunk's summary exact, not those above it; say whether they changed."""
        leaf: cython.longlong = self.leaves + chunk
        leading: cython.longlong = -1
        longest: cython.longlong = 0
        run: cython.longlong = 0
        i: cython.longlong
        self.flags[chunk] &= LENGTHS_UNKNOWN
        self.steps += 1
        for i in range(chunk * CHUNK_WORDS, (chunk + 1) * CHUNK_WORDS):
            bits: cython.ulonglong = self.words[i]
            if bits == FULL_WORD:
                run += WORD_PAGES
                continue
            run += trailing_zeros(bits ^ FULL_WORD)
            if leading < 0:
                leading = run
            longest = max(longest, run)
            run = leading_zeros(bits ^ FULL_WORD)
            # Where `longest + 1` ones end, found by doubling; a longer run leaves a longer trace.
            length: cython.longlong = 1
            while length <= longest and bits:
                shift: cython.longlong = min(length, longest + 1 - length)
                bits &= bits << shift
                length += shift
            while bits:
                longest += 1
                bits &= bits << 1
        longest = max(longest, run)
        if leading < 0:
            leading = run
        changed: cython.bint = (
            self.summaries[leaf].leading != leading
            or self.summaries[leaf].longest != longest
            or self.summaries[leaf].trailing != run
        )
        self.summaries[leaf].leading = leading
        self.summaries[leaf].longest = longest
        self.summaries[leaf].trailing = run
        return changed

    def _measure_lengths(self, chunk):
        """Make the lengths of the runs that begin in a chunk exact, and those above it."""
        self.flags[chunk] &= TOO_HIGH
        self.steps += 1
        lengths: cython.ulonglong = 0
        before: cython.ulonglong = self._last_of_word(chunk * CHUNK_WORDS - 1)
        i: cython.longlong
        for i in range(chunk * CHUNK_WORDS, (chunk + 1) * CHUNK_WORDS):
            bits: cython.ulonglong = self.words[i]
            begins: cython.ulonglong = bits & (FULL_WORD ^ ((bits << 1) & FULL_WORD | before))
            before = bits >> (WORD_PAGES - 1)
            # All runs of one, two and three pages at once: most are so short where there are many.
            run: cython.longlong
            for run in range(1, 4):
                longer: cython.ulonglong = begins & bits >> run
                if i + 1 < self.chunks * CHUNK_WORDS:
                    longer |= begins & self.words[i + 1] << (WORD_PAGES - run)
                if longer != begins:
                    lengths |= FIRST_BIT << (run - 1)
                begins = longer
            while begins:
                page: cython.longlong = i * WORD_PAGES + trailing_zeros(begins)
                lengths |= FIRST_BIT << (self._free_from(page) - 1)
                begins &= begins - 1
        node: cython.longlong = self.leaves + chunk
        while self.summaries[node].lengths != lengths:
            self.summaries[node].lengths = lengths
            node //= 2
            if node == 0:
                break
            self.steps += 1
            lengths = self.summaries[2 * node].lengths | self.summaries[2 * node + 1].lengths

    def _forget_lengths(self, first, last):
        """Remember that among the chunks from `first` to `last` are some whose lengths are not known."""
        self.unknown_from = min(self.unknown_from, first)
        self.unknown_to = max(self.unknown_to, last + 1)

    def _measure_unknown(self):
        """Measure the lengths of every chunk that has changed, and of its neighbours where a run reaches across."""
        chunk: cython.longlong
        for chunk in range(self.unknown_from, self.unknown_to):
            if self.flags[chunk] & LENGTHS_UNKNOWN:
                if chunk > 0 and self.summaries[self.leaves + chunk - 1].trailing > 0:
                    self._measure_lengths(chunk - 1)
                self._measure_lengths(chunk)
                if chunk + 1 < self.chunks and not self.flags[chunk + 1] & LENGTHS_UNKNOWN:
                    if self.summaries[self.leaves + chunk + 1].leading > 0:
                        self._measure_lengths(chunk + 1)
        self.unknown_from = self.chunks
        self.unknown_to = 0

    def _summarize(self, node, half):
        """Make a summary of its two children, each of `half` pages; say whether its runs changed."""
        leading: cython.longlong = self.summaries[2 * node].leading
        trailing: cython.longlong = self.summaries[2 * node + 1].trailing
        longest: cython.longlong = max(
            self.summaries[2 * node].longest,
            self.summaries[2 * node + 1].longest,
            self.summaries[2 * node].trailing + self.summaries[2 * node + 1].leading,
        )
        self.steps += 1
        if leading == half:
            leading += self.summaries[2 * node + 1].leading
        if trailing == half:
            trailing += self.summaries[2 * node].trailing
        changed: cython.bint = (
            self.summaries[node].leading != leading
            or self.summaries[node].longest != longest
            or self.summaries[node].trailing != trailing
        )
        self.summaries[node].leading = leading
        self.summaries[node].longest = longest
        self.summaries[node].trailing = trailing
        return changed

    def _climb(self, chunk):
        """Recompute the summaries above a chunk, up to the first that does not change."""
        node: cython.longlong = (self.leaves + chunk) // 2
        half: cython.longlong = CHUNK_PAGES
        while node > 0 and self._summarize(node, half):
            node //= 2
            half *= 2

    def _lowered(self, start, stop):
        """Make the summaries of the chunks from page `start` to `stop` exact; say whether any changed."""
        changed: cython.bint = False
        chunk: cython.longlong
        for chunk in range(start // CHUNK_PAGES, (stop - 1) // CHUNK_PAGES + 1):
            if self.flags[chunk] & TOO_HIGH and self._make_exact(chunk):
                self._climb(chunk)
                changed = True
        return changed

    def _exact_run(self, run, chunk):
        """Return the length of a run that begins at the end of `chunk`, once that chunk's summary is exact."""
        if run > 0 and self.flags[chunk] & TOO_HIGH:
            run -= self.summaries[self.leaves + chunk].trailing
            if self._make_exact(chunk):
                self._climb(chunk)
            run += self.summaries[self.leaves + chunk].trailing
        return run

    def _remove_runs_of(self, length, pages, count):
        """Take out runs of exactly `length` pages, the lowest first, until fewer than that are left of `count`.

        Returns how many pages it has written into `pages`.
        """
        taken: cython.longlong = 0
        named: cython.ulonglong = FIRST_BIT << (length - 1)
        while count - taken >= length and self.summaries[1].lengths & named:
            chunk: cython.longlong = self._lowest_naming(named)
            i: cython.longlong
            # It begins in this chunk; where it ends in the next, that one is flagged as well.
            self.flags[chunk] |= TOO_HIGH
            for i in range(chunk * CHUNK_WORDS, (chunk + 1) * CHUNK_WORDS):
                begins: cython.ulonglong = self._begins_of(i, length)
                while begins and count - taken >= length:
                    bit: cython.longlong = trailing_zeros(begins)
                    page: cython.longlong = i * WORD_PAGES + bit
                    begins &= begins - 1
                    if bit + length <= WORD_PAGES:
                        self.words[i] &= FULL_WORD ^ ((FULL_WORD >> (WORD_PAGES - length)) << bit)
                    else:
                        self._write(page, page + length, False)
                        self.flags[(page + length - 1) // CHUNK_PAGES] |= TOO_HIGH
                    for offset in range(length):
                        pages[taken] = page + offset
                        taken += 1
            if count - taken >= length:
                self._drop_length(chunk, named)
        self.free -= taken
        return taken

    def _begins_of(self, word, length):
        """Return at which pages of a word a run of exactly `length` pages, less than LONG_RUN, begins."""
        low: cython.ulonglong = self.words[word]
        high: cython.ulonglong = self.words[word + 1] if word + 1 < self.chunks * CHUNK_WORDS else 0
        before: cython.ulonglong = self._last_of_word(word - 1)
        begins: cython.ulonglong = low & (FULL_WORD ^ ((low << 1) & FULL_WORD | before))
        # Where `reach` free pages follow, each page itself included, found by doubling.
        long_low: cython.ulonglong = low
        long_high: cython.ulonglong = high
        reach: cython.longlong = 1
        while reach < length:
            shift: cython.longlong = min(reach, length - reach)
            long_low &= long_low >> shift | (long_high << (WORD_PAGES - shift)) & FULL_WORD
            long_high &= long_high >> shift
            reach += shift
        longer: cython.ulonglong = low >> length | (high << (WORD_PAGES - length)) & FULL_WORD
        return begins & long_low & (FULL_WORD ^ longer)

    def _lowest_naming(self, named):
        """Return the lowest chunk that names a length; there is one."""
        node: cython.longlong = 1
        while node < self.leaves:
            self.steps += 1
            node *= 2
            if not self.summaries[node].lengths & named:
                node += 1
        return node - self.leaves

    def _last_of_word(self, word):
        """Return whether the last page of a word is free; of the word before the first it is not."""
        return self.words[word] >> (WORD_PAGES - 1) if word >= 0 else 0

    def _lowest_of_length(self, length):
        """Return where the lowest run of `length` pages, or of LONG_RUN or more, begins.

        -1 where there is none in the first chunk that names it: then it no longer does.
        """
        named: cython.ulonglong = FIRST_BIT << (length - 1)
        chunk: cython.longlong = self._lowest_naming(named)
        i: cython.longlong
        for i in range(chunk * CHUNK_WORDS, (chunk + 1) * CHUNK_WORDS):
            begins: cython.ulonglong
            if length < LONG_RUN:
                begins = self._begins_of(i, length)
                if begins:
                    return i * WORD_PAGES + trailing_zeros(begins)
            else:
                # Only the last run that begins in a word can be so long.
                taken: cython.ulonglong = self.words[i] ^ FULL_WORD
                page: cython.longlong = i * WORD_PAGES + WORD_PAGES - leading_zeros(taken)
                if leading_zeros(taken) == WORD_PAGES and self._last_of_word(i - 1):
                    continue
                if self._free_from(page) == length and page < (i + 1) * WORD_PAGES:
                    return page
        self._drop_length(chunk, named)
        return -1

    def _drop_length(self, chunk, named):
        """Say that no run of a length begins in a chunk any more."""
        node: cython.longlong = self.leaves + chunk
        self.summaries[node].lengths &= FULL_WORD ^ named
        node //= 2
        while node > 0 and not (self.summaries[2 * node].lengths | self.summaries[2 * node + 1].lengths) & named:
            self.steps += 1
            self.summaries[node].lengths &= FULL_WORD ^ named
            node //= 2

    def _smallest_long_run(self, length):
        """Return where the smallest run of at least `length` pages starts, or -1: a pass over all summaries.

        Looks into the chunks that have a smaller one than was found so far, until one of exactly `length` is found.
        """
        if self.summaries[1].longest < length:
            return -1
        smallest: cython.longlong = self.chunks * CHUNK_PAGES + 1
        start: cython.longlong = -1
        # The run that reaches the end of the chunk before, and the chunk that it begins in.
        run: cython.longlong = 0
        begins: cython.longlong = 0
        chunk: cython.longlong = 0
        for chunk in range(self.chunks):
            leaf: cython.longlong = self.leaves + chunk
            first: cython.longlong = chunk * CHUNK_PAGES
            leading: cython.longlong = self.summaries[leaf].leading
            if (
                leading == CHUNK_PAGES
                or self.summaries[leaf].longest >= length
                or run + self.summaries[leaf].leading >= length
            ):
                self._lowered(first, first + CHUNK_PAGES)
                leading = self.summaries[leaf].leading
                if run + leading >= length:
                    run = self._exact_run(run, begins)
            if leading == CHUNK_PAGES:
                begins = begins if run > 0 else chunk
                run += CHUNK_PAGES
                continue
            if length <= run + leading < smallest:
                smallest = run + leading
                start = first - run
            if self.summaries[leaf].longest >= length:
                stop: cython.longlong = first + CHUNK_PAGES - self.summaries[leaf].trailing
                page: cython.longlong = self._next_free(first + leading, stop)
                while page < stop and smallest > length:
                    end: cython.longlong = self._next_taken(page, stop)
                    if length <= end - page < smallest:
                        smallest = end - page
                        start = page
                    page = self._next_free(end, stop)
            if smallest == length:
                break
            run = self.summaries[leaf].trailing
            begins = chunk
        self.steps += chunk + 1
        if smallest > length:
            run = self._exact_run(run, begins)
            if length <= run < smallest:
                start = self.chunks * CHUNK_PAGES - run
        return start
