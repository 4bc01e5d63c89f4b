"""A build backend that builds nothing: it stands in for setuptools' while pip downloads a source distribution.

pip asks a source distribution's backend what the package is before it keeps the file. An engine's own answer takes
torch, CUDA's headers and Rust; the distribution says it in PKG-INFO.
"""

from email.parser import HeaderParser
from pathlib import Path


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write what PKG-INFO says; return the name of the folder."""
    text = Path("PKG-INFO").read_text(encoding="utf-8")
    headers = HeaderParser().parsestr(text)
    folder = Path(metadata_directory, f"{headers['Name'].replace('-', '_')}-{headers['Version']}.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text(text, encoding="utf-8")
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Refuse: a backend has to have this function."""
    raise NotImplementedError("only downloaded")
