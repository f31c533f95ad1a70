"""What several tests share. The lab is made once for all tests, and its runs share only its files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from framework_lab import Lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def double() -> Iterator[None]:
    """New tensors of PyTorch are in double precision."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
