"""Which environment variables reach what is built and measured: those of this list, and no others.

Others change the figure without being part of the commit: they switch a compiler off (NUMBA_DISABLE_JIT), choose
another allocator or number of threads (MALLOC_*, LD_PRELOAD, OMP_*), change what Python itself does (PYTHON*), choose
our own loops (KVPOOL_CPU) or how they are compiled (CFLAGS).
"""

import os
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_SYSTEM = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "NO_COLOR", "TZ", "LANG", "LANGUAGE"}
_COMPILER = {
    "CC", "CXX", "AR", "LDSHARED", "SDKROOT", "DEVELOPER_DIR", "MACOSX_DEPLOYMENT_TARGET",
    "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH",
}  # fmt: skip
_NETWORK = {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "NETRC"}
_PROXIES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}  # in small letters or capitals
_FOLDERS = {"XDG_CONFIG_HOME", "XDG_CACHE_HOME"}
# Which device is ours to measure on, of those that the machine shares.
_DEVICES = {"CUDA_VISIBLE_DEVICES"}
_NAMES = _SYSTEM | _COMPILER | _NETWORK | _FOLDERS | _DEVICES
_PREFIXES = ("LC_", "PIP_", "NPM_CONFIG_", "npm_config_", "ZIG_", "GIT_CONFIG")
_BUILD_OPTIONS = {"PIP_CONFIG_SETTINGS", "PIP_GLOBAL_OPTION", "PIP_BUILD_OPTION"}

# What an extension module is built with: two builds that differ here are not the same.
BUILD = ("CC", "CXX", "AR", "LDSHARED", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET", "CPATH", "C_INCLUDE_PATH")


def passed_on(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of the variables that reach what is built and measured.

    >>> passed_on({"HOME": "/root", "CC": "gcc", "PYTHONMALLOC": "debug", "LD_PRELOAD": "x.so"})
    {'HOME': '/root', 'CC': 'gcc'}
    """
    found = {name: value for name, value in variables.items() if _passes(name)}
    # Some interpreters find their own library by this alone.
    library = sysconfig.get_config_var("LIBDIR")
    if library and any(_same(each, library) for each in variables.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        found["LD_LIBRARY_PATH"] = library
    return found


@contextmanager
def only_these() -> Iterator[None]:
    """Take every other variable out of this process, and so out of all that it starts, until the end of the block."""
    before = dict(os.environ)
    kept = passed_on(before)
    try:
        os.environ.clear()
        os.environ.update(kept)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _passes(name: str) -> bool:
    if name in _BUILD_OPTIONS:
        return False
    return name in _NAMES or name.lower() in _PROXIES or name.startswith(_PREFIXES)


def _same(folder: str, other: str) -> bool:
    return bool(folder) and Path(folder).resolve() == Path(other).resolve()
