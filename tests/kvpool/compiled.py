"""Whether the package that is tested is compiled, or a copy whose source runs as plain Python."""

import kvpool.host

COMPILED = not (kvpool.host.__file__ or "").endswith(".py")
