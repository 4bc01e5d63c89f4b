"""Name this machine by what decides its speed: CPU model, cores and memory, and nothing else of it."""

import os
import platform
import re
from pathlib import Path

from asv import util
from asv.machine import MachineCollection

# asv's own default (the user's ~/.asv-machine.json) would carry the host's name and the kernel's version.
_NOISE = re.compile(r"\((R|TM|C)\)|\bCPU\b|\bProcessor\b|\bwith .*$|\b\d+-Core\b", re.IGNORECASE)


def describe() -> dict[str, str]:
    """Return asv's fields for this machine, ``machine`` (its name, fit for a file name) among them."""
    cpu = " ".join(_NOISE.sub(" ", util.get_cpu_info() or platform.machine()).replace("@", " ").split())
    cores = os.cpu_count() or 1
    memory = util.get_memsize()
    ram = f"{round(int(memory) / 2**30)}GiB" if memory else "unknown-memory"
    return {
        "machine": file_name(f"{cpu} {cores} cores {ram}"),
        "os": platform.system(),
        "arch": platform.machine(),
        "cpu": cpu,
        "num_cpu": str(cores),
        "ram": ram,
    }


def processor() -> str:
    """Return which processor this is where its name does not tell, as on a virtual machine; empty if unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = dict(re.findall(r"^(cpu family|model|stepping|cache size)\s*:\s*(.*)$", text, re.MULTILINE))
    return ", ".join(f"{name} {value}" for name, value in fields.items())


def file_name(text: str) -> str:
    """Return `text` with each stretch of anything but letters, digits and dots as one hyphen.

    >>> file_name("AMD EPYC 7B13 (64) 2 cores")
    'AMD-EPYC-7B13-64-2-cores'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")


def write_machine_file(folder: Path) -> tuple[str, Path]:
    """Write an asv machine file for this machine into `folder`; return the machine's name and the file."""
    description = describe()
    path = folder / "machines.json"
    # It is written whole each time: nothing in it is worth keeping, and what is there may be broken.
    path.unlink(missing_ok=True)
    MachineCollection.save(description["machine"], description, _path=str(path))
    return description["machine"], path
