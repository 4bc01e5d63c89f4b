"""Write figures for people."""

import re

from asv.util import human_value


def figure(value: float, unit: str) -> str:
    """Return a figure with its unit, in three or four digits.

    >>> figure(6.4e-5, "seconds"), figure(15.3138, "bytes"), figure(512_000, "bytes"), figure(1.0567, "runs")
    ('64.0 μs', '15.3 bytes', '512 kB', '1.057 runs')
    """
    if unit == "seconds":
        return re.sub(r"(?<=\d)(?=\D+$)", " ", human_value(value, unit))
    if unit == "bytes":
        for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            if value >= size:
                return f"{value / size:.3g} {name}"
        return f"{value:.3g} bytes"
    return f"{value:.4g} {unit}"


def exact(value: float, unit: str) -> str:
    """Return a count in so many digits that a small difference shows.

    >>> exact(17_600_000, "bytes"), exact(12.340945454545455, "bytes"), exact(2, "operations")
    ('17,600,000 bytes', '12.34094545 bytes', '2 operations')
    """
    return f"{value:,.10g} {unit}"
