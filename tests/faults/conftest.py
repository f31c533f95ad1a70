"""A small corpus for runs that are disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

import training_fixtures


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return training_fixtures.corpus(tmp_path / "data" / "sample" / "seq32")
