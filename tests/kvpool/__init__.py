"""The package itself: what its coverage is taken over, and what runs in the copies of `tests.copied`."""
