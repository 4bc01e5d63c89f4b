from typing import Any

import pytest

from tests.kvpool.pools import KINDS, Kind


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def pool(kind: Kind) -> Any:
    return kind.build()
