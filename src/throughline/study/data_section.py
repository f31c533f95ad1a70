"""What every section of config.yaml offers that describes data: `corpus` is one.

A new kind of data is a subclass, in a file of its own, and a field of `Config`. A workload names its section (DATA).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from throughline.study.section import Name, Section, canonical


class DataIdentity(Section):
    """The data that a run reads, by what decides them: known before any of it is made."""

    name: Name
    digest: str


class DataSection(Section):
    """`parameters` are those of a run's workload: a section may describe several sets of files."""

    name: Name

    def decided_by(self, parameters: Any) -> dict[str, Any]:
        """All that decides the files that these parameters read; their manifest keeps it."""
        raise NotImplementedError

    def mistakes(self) -> Iterable[str]:
        """What is wrong with the section as a whole, each with its key."""
        return ()

    def mistakes_of(self, own: Mapping[str, Any], held_out: bool) -> Iterable[str]:
        """What of a block does not fit these data, each with its key: its workload's keys, and its convergence check,
        which reads held-out data."""
        return ()

    def without_places(self) -> dict[str, Any]:
        """The section as a record keeps it: without folders, addresses and people."""
        return self.model_dump(mode="json")

    def identity(self, parameters: Any) -> DataIdentity:
        """The data by their name and the beginning of their manifest's `parameters_digest`."""
        digest = hashlib.sha256(canonical(self.decided_by(parameters)).encode()).hexdigest()
        return DataIdentity(name=self.name, digest=digest[:12])
