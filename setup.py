"""Build the extension modules; everything else about the package is in pyproject.toml."""

import shutil
import sys
import sysconfig
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MODULES = {
    "kvpool._memory": "kvpool/_memory.pyx",
    "kvpool._vector": "kvpool/_vector.pyx",
    "kvpool._crossings": "kvpool/_crossings.pyx",
    "kvpool._run_index": "kvpool/_run_index.py",
    "kvpool._sort": "kvpool/_sort.py",
    "kvpool._fifo_order": "kvpool/_fifo_order.py",
    "kvpool._lane": "kvpool/_lane.py",
    "kvpool._page_set": "kvpool/_page_set.py",
    "kvpool._outstanding": "kvpool/_outstanding.py",
    "kvpool._free_pages": "kvpool/_free_pages.py",
    "kvpool._token_arrays": "kvpool/_token_arrays.pyx",
    "kvpool._token_rows": "kvpool/_token_rows.py",
    "kvpool._tokens_input": "kvpool/_tokens_input.py",
    "kvpool.host": "kvpool/host.py",
    "kvpool.page_counts": "kvpool/page_counts.py",
    "kvpool.lanes": "kvpool/lanes.py",
    "kvpool.paged": "kvpool/paged.py",
    "kvpool.token_buffer": "kvpool/token_buffer.py",
    "kvpool.request_tokens": "kvpool/request_tokens.py",
    "kvpool.token_table": "kvpool/token_table.py",
    "kvpool.prefix": "kvpool/prefix.py",
}
HEADERS = ["kvpool/_vector_loops.h", "kvpool/_vector_loops_body.h"]
DIRECTIVES = {
    "language_level": 3,
    "cdivision": True,
    "infer_types": True,
    # What inspect.signature reads, of a method that is called without a binding.
    "embedsignature.format": "clinic",
}


class BuildExtensions(build_ext):
    """Build the extension modules, or say in a sentence what is missing for it."""

    def build_extensions(self):
        """Look for what every module needs before the first is compiled."""
        if self.compiler.compiler_type == "unix":
            compiler = self.compiler.compiler_so[0]
            if not shutil.which(compiler):
                sys.exit(
                    f"error: kvpool is compiled while it is installed, and its C compiler {compiler!r} is not there: "
                    "install one (Debian: gcc), or name one in CC and LDSHARED, as the Makefile does for ziglang"
                )
        header = Path(sysconfig.get_path("include"), "Python.h")
        if not header.is_file():
            sys.exit(
                f"error: kvpool is compiled while it is installed, and Python's headers are not there ({header}): "
                "install them (Debian: python3-dev)"
            )
        super().build_extensions()


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=cythonize(
        [
            Extension(
                name,
                [source],
                include_dirs=[np.get_include(), "kvpool"],
                define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
                extra_compile_args=["-O3", "-fno-math-errno"],
                depends=HEADERS,
            )
            for name, source in MODULES.items()
        ],
        build_dir="build",
        compiler_directives=DIRECTIVES,
        force="--force" in sys.argv,
    ),
)
