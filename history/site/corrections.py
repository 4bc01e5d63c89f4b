"""What asv's published data lacks: an order of its own, and dates that follow the order of the commits."""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from history import commits, records
from history.site import trend

# What asv writes for an address of commits that is not configured.
NO_ADDRESS = "#"

_DEAD_LINK = re.compile(r"&lt;a href=\"#[0-9a-f./]+\"&gt;(.*?)&lt;/a&gt;")


@contextmanager
def utc() -> Iterator[None]:
    """Let local times be UTC: asv's feed is written in them."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


def tidy(regressions: list[list[Any]]) -> None:
    """Order asv's regressions, and leave out those of cases that run no code of kvpool."""
    regressions[:] = sorted((each for each in regressions if not _is_control(each[0])), key=lambda each: each[:2])


def _is_control(name: str) -> bool:
    benchmark, _, parameters = name.removesuffix(")").partition("(")
    return records.is_control(records.Case(benchmark, tuple(parameters.split(", "))))


def correct(html: Path, measured: int, address: str) -> None:
    """Make what asv wrote to `html` the same each time that it is written of the same data.

    `measured` is when the latest of it was measured, in seconds since the epoch; `address` is that of commits, if any.
    """
    index = html / "index.json"
    found = json.loads(index.read_text(encoding="utf-8"))
    _order(found)
    _date(found)
    index.write_text(json.dumps(found, separators=(",", ":")), encoding="utf-8")
    _correct_feed(html / "regressions.xml", measured, address)
    _stamp(html)


def _order(index: dict[str, Any]) -> None:
    """Order what asv keeps in the order in which a folder lists its files."""
    for key in ("machines", "benchmarks"):
        index[key] = dict(sorted(index[key].items()))
    index["graph_param_list"].sort(key=lambda each: json.dumps(each, sort_keys=True))


def _date(index: dict[str, Any]) -> None:
    """Date the commits as they follow each other: an author's date can lie before that of an ancestor."""
    hashes = {int(revision): name for revision, name in index["revision_to_hash"].items()}
    order = sorted(hashes)
    described = commits.describe([hashes[revision] for revision in order])
    recorded = {int(revision): date // 1000 for revision, date in index["revision_to_date"].items()}
    dates = [each.date or recorded[revision] for revision, each in zip(order, described, strict=True)]
    for revision, date in zip(order, trend.rising(dates), strict=True):
        index["revision_to_date"][str(revision)] = 1000 * date


def _correct_feed(feed: Path, measured: int, address: str) -> None:
    text = feed.read_text(encoding="utf-8")
    if not address:
        text = _DEAD_LINK.sub(r"\1", text)
    if "<entry>" not in text:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(measured))
        text = re.sub("<updated>[^<]*", f"<updated>{when}", text, count=1)
    feed.write_text(text, encoding="utf-8")


def _stamp(html: Path) -> None:
    """Give the site a stamp of its data, not of the time: asv's page appends it to addresses, against caches."""
    info = html / "info.json"
    data = hashlib.sha256()
    for path in sorted(html.rglob("*.json")):
        if path != info:
            data.update(path.read_bytes())
    found = json.loads(info.read_text(encoding="utf-8")) | {"timestamp": int(data.hexdigest()[:12], 16)}
    info.write_text(json.dumps(found, indent=4), encoding="utf-8")
