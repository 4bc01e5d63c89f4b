"""What the sweeps share: arguments that are checked before anything runs, statistics, the progress bar, JSON files."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from tqdm import tqdm


class Parser(argparse.ArgumentParser):
    """A parser that shows every default, and reports an error in one line, with exit status 2."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"python -m benchmarks {command}",
            description=description,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Say in one line what was wrong and what to write instead."""
        if message.startswith("unrecognized arguments"):
            message += ": --help lists the options"
        self.exit(2, f"{self.prog}: {message}\n")


def names(*known: str) -> Callable[[str], list[str]]:
    """Return an argument type: a comma-separated list of known names, without repeats."""

    def parse(text: str) -> list[str]:
        found = _items(text, f"write some of {','.join(known)}")
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"unknown name {name!r}: write some of {','.join(known)}")
        return found

    return parse


def positive_int(text: str) -> int:
    """Argument type: an integer of at least 1."""
    return _number(text, int, 1, "write a positive integer")


def index(text: str) -> int:
    """Argument type: an integer of at least 0."""
    return _number(text, int, 0, "write 0 or a positive integer")


def positive_float(text: str) -> float:
    """Argument type: a finite number above 0."""
    return _number(text, float, math.ulp(0.0), "write a positive number")


def positive_ints(text: str) -> list[int]:
    """Argument type: a comma-separated list of positive integers, without repeats."""
    return _unique(positive_int(item) for item in _items(text, "write positive integers, as in 1,8,64"))


def positive_floats(text: str) -> list[float]:
    """Argument type: a comma-separated list of positive numbers, without repeats."""
    return _unique(positive_float(item) for item in _items(text, "write positive numbers, as in 0.5,220"))


def output_file(text: str) -> Path:
    """Argument type: the path of a file that can be written; nothing is left there yet."""
    path = Path(text)
    existed = path.exists()
    try:
        with path.open("a"):
            pass
        if not existed:
            path.unlink()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise argparse.ArgumentTypeError(f"cannot write {text!r} ({reason}): write the path of a file") from None
    return path


def add_device(parser: Parser) -> None:
    """Add `--device` and `--cuda-device`; `torch_device` checks them."""
    parser.add_argument("--device", type=_device, default="cpu", metavar="cpu|cuda", help="where results are made")
    parser.add_argument("--cuda-device", type=index, default=0, help="number of the CUDA device")


def torch_device(parser: Parser, arguments: argparse.Namespace) -> torch.device:
    """Return the device that was asked for; an error where it is not there."""
    if arguments.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        parser.error("argument --device: there is no CUDA device: write --device cpu")
    count = torch.cuda.device_count()
    if arguments.cuda_device >= count:
        parser.error(f"argument --cuda-device: there is no device {arguments.cuda_device}: write 0 to {count - 1}")
    return torch.device("cuda", arguments.cuda_device)


def _device(text: str) -> str:
    if text not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"unknown device {text!r}: write cpu or cuda")
    return text


def _items(text: str, instead: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if items == [""]:
        raise argparse.ArgumentTypeError(f"the list is empty: {instead}")
    if "" in items:
        raise argparse.ArgumentTypeError(f"an item of {text!r} is empty: {instead}")
    return _unique(items)


def _unique(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def _number(text: str, kind: type, least: float, instead: str) -> Any:
    try:
        number = kind(text)
        valid = math.isfinite(number) and number >= least
    except (ValueError, OverflowError):
        valid = False
    if not valid:
        raise argparse.ArgumentTypeError(f"{text!r}: {instead}")
    return number


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Return mean, p50, p95, p99, min and max of samples; a percentile p is at rank (n - 1) * p / 100, linear."""
    p50, p95, p99 = np.percentile(samples, [50, 95, 99]).tolist()
    return {
        "mean": float(np.mean(samples)),
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "min": float(np.min(samples)),
        "max": float(np.max(samples)),
    }


class Progress(tqdm):
    """A progress bar below lines of output, where the errors go to a terminal."""

    def __init__(self, total: int) -> None:
        super().__init__(total=total, disable=None, leave=False, dynamic_ncols=True)

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self.write(text)
        sys.stdout.flush()


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document so that `json.loads` gives back equal values."""
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
