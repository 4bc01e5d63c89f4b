"""The feed of large steps: what a commit did to a family, better or worse."""

import datetime
import hashlib

from history.site import pages, trend
from history.site.families import FAMILIES
from history.site.recorded import Recorded
from history.templating import render as render_template


def render(found: Recorded) -> str:
    """Return the feed, the newest first, the same bytes for the same records."""
    entries = []
    for family in FAMILIES:
        for step in trend.steps(family, found.shown):
            if step is None or not trend.is_large(step.ratio) or found.is_noise_of(family, step):
                continue
            before, after = (found.hashes[each][:8] for each in (step.index - 1, step.index))
            commit = found.described[step.index]
            entries.append(
                {
                    "id": hashlib.sha256(f"{family.title} {found.hashes[step.index]}".encode()).hexdigest()[:32],
                    "title": f"{family.title}: {trend.better_or_worse(step.ratio)} at {after}",
                    "about": f"{found.name(commit.hash) or commit.subject}: geometric mean of {step.cases} figures.",
                    "link": f"{pages.COMPARE}#{before}..{after}",
                    "date": _day(commit.date),
                    "order": step.index,
                }
            )
    entries.sort(key=lambda each: (-each["order"], each["title"]))
    return render_template(
        "steps.xml", entries=entries, updated=entries[0]["date"] if entries else _day(found.measured)
    )


def _day(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
