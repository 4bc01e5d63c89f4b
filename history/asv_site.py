"""The asv plugin: after asv has published, put the page's libraries beside it and the front page before it.

It wraps ``Publish.run`` because asv writes ``index.json`` last, after all of its own output plugins.
"""

from pathlib import Path

from asv.commands.publish import Publish
from asv.plugins.regressions import Regressions

from history.site import corrections, finish


def _wrap(original):
    def run(cls, conf, range_spec=None, pull=True):
        with corrections.utc():
            original(conf, range_spec=range_spec, pull=pull)
        finish(conf, Path(conf.html_dir))

    run.wrapped = original
    return classmethod(run)


def _wrap_save(original):
    # The list is saved first, and the feed is made of the same one.
    def _save(cls, conf, data):
        corrections.tidy(data["regressions"])
        original(conf, data)

    return classmethod(_save)


if not hasattr(Publish.run, "wrapped"):
    Publish.run = _wrap(Publish.run)
    Regressions._save = _wrap_save(Regressions._save)
