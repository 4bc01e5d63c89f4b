"""The asv plugin: after asv has published, put the page's libraries beside it and the front page before it.

It wraps ``Publish.run`` because asv writes ``index.json`` last, after all of its own output plugins.
"""

from pathlib import Path

from asv.commands.publish import Publish

from history.site import finish


def _wrap(original):
    def run(cls, conf, range_spec=None, pull=True):
        original(conf, range_spec=range_spec, pull=pull)
        finish(conf, Path(conf.html_dir))

    run.wrapped = original
    return classmethod(run)


if not hasattr(Publish.run, "wrapped"):
    Publish.run = _wrap(Publish.run)
