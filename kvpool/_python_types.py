"""What makes a compiled type look like one that is written in Python."""

from typing import Any


def attributes_of(held: object, *fields: str) -> dict[str, Any]:
    """Return the attributes that a subclass has given an object, without the fields that are there uncompiled."""
    return {name: value for name, value in getattr(held, "__dict__", {}).items() if name not in fields}
