"""The lab is made once for all tests. Its runs share only its files."""

from __future__ import annotations

import pytest

from framework_lab import Lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("lab"))
