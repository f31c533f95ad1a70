"""Fresh clones for the workflow's tests."""

from collections.abc import Callable

import pytest

from clones import SMALL, Clone, copy


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Clone]:
    def make(configuration: str = SMALL) -> Clone:
        return copy(tmp_path_factory.mktemp("clone") / "it's a folder; $(touch pwned)", configuration)

    return make


@pytest.fixture(scope="session")
def planned(clone: Callable[[], Clone]) -> Clone:
    """A clone in which nothing is made. Tests only plan there (`--dry-run`), so they share it."""
    return clone()


@pytest.fixture(scope="session")
def finished(clone: Callable[[], Clone]) -> tuple[Clone, str]:
    """A clone after the whole small job, and what the console printed. Tests leave it complete."""
    done = clone()
    return done, done.made(**done.console).stdout
