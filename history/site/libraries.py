"""The libraries of asv's page, taken from npm by a lock file so that the site needs no other host."""

import re
import shutil
import subprocess
from pathlib import Path

from history.paths import SCRATCH

HERE = Path(__file__).resolve().parent

# The file that asv's page asks a content network for, and the same file inside its npm package.
FILES = {
    "jquery-3.3.1.min.js": "jquery/dist/jquery.min.js",
    "jquery.flot.min.js": "flot/jquery.flot.js",
    "jquery.flot.time.min.js": "flot/jquery.flot.time.js",
    "jquery.flot.selection.min.js": "flot/jquery.flot.selection.js",
    "jquery.flot.categories.min.js": "flot/jquery.flot.categories.js",
    "jquery.flot.orderBars.js": "flot-orderbars/js/jquery.flot.orderBars.js",
    "stupidtable.min.js": "stupid-table-plugin/stupidtable.min.js",
    "md5.min.js": "blueimp-md5/js/md5.min.js",
    "bootstrap.min.js": "bootstrap/dist/js/bootstrap.min.js",
    "bootstrap.min.css": "bootstrap/dist/css/bootstrap.min.css",
}

_REMOTE = re.compile(r'<(?P<tag>script|link)\b[^>]*?\b(?P<key>src|href)="https?://[^"]*/(?P<file>[^"/]+)"[^>]*>')


def bring(vendor: Path) -> str | None:
    """Copy the libraries into the folder `vendor`; return None, or why that was not possible."""
    modules, problem = _install()
    if problem:
        return problem
    vendor.mkdir(parents=True, exist_ok=True)
    for name, source in FILES.items():
        shutil.copyfile(modules / source, vendor / name)
    return None


def rewrite(page: Path) -> None:
    """Point the scripts and styles that `page` loads from other hosts at ``vendor/``."""

    def local(match: re.Match[str]) -> str:
        name = match["file"]
        if name not in FILES:
            raise LookupError(f"asv's page loads {name}, which history/site/libraries.py does not know")
        if match["tag"] == "link":
            return f'<link rel="stylesheet" href="vendor/{name}">'
        return f'<script src="vendor/{name}" onerror="js_load_failure()">'

    page.write_text(_REMOTE.sub(local, page.read_text(encoding="utf-8")), encoding="utf-8")


def _install() -> tuple[Path, str | None]:
    """Install the packages of the lock file under .asv/npm, once; return their folder and what went wrong."""
    folder = SCRATCH / "npm"
    modules = folder / "node_modules"
    lock = (HERE / "package-lock.json").read_text(encoding="utf-8")
    installed = folder / "installed.json"
    if installed.is_file() and installed.read_text(encoding="utf-8") == lock:
        return modules, None
    npm = shutil.which("npm")
    if npm is None:
        return modules, "npm is not installed"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(HERE / name, folder / name)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return modules, f"npm ci failed ({lines[0]})"
    installed.write_text(lock, encoding="utf-8")
    return modules, None
