"""A map of the configuration, one that describes data, and the kinds of values that their keys take."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

NAME = r"[a-z][a-z0-9_]*"
TOPOLOGY = r"[1-9]\d*n[1-9]\d*g"

Name = Annotated[str, Field(pattern=rf"^{NAME}$")]
Text = Annotated[str, Field(min_length=1)]
Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
PositiveInt = Annotated[int, Field(ge=1)]
Sizes = Annotated[tuple[PositiveInt, ...], Field(strict=False)]
"""A list of whole numbers; what is read of it cannot be changed."""
Value = int | float | str | bool | Sizes
Share = Annotated[float, Field(ge=0, le=1)]
HttpAddress = Annotated[str, Field(pattern=r"^https?://[^\s?#]+$")]
Contact = Annotated[str, Field(pattern=r"^[!-~]+(@|://)[!-~]+$")]

PATTERNS = {
    rf"^{TOPOLOGY}$": "a topology is <nodes>n<devices per node>g, both from 1 on, such as 1n2g or 4n8g",
    r"^https?://[^\s?#]+$": "an address begins with http:// or https:// and has no blank, ? or #",
    r"^[!-~]+(@|://)[!-~]+$": "an e-mail or web address is needed, such as you@your.org",
    r"^[A-Z]{3}$": "a currency is three capital letters, such as EUR",
    rf"^{NAME}$": "a name has lower-case letters, digits and _, and begins with a letter",
}
"""What each regular expression asks for, in words."""


class Section(BaseModel):
    """A map of the configuration: types are strict, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @classmethod
    def variant(cls, values: Mapping[str, Any]) -> type[Section]:
        """The class that takes these values, where the keys of a section depend on one of them."""
        return cls

    @classmethod
    def unknown(cls, key: str) -> str | None:
        """What is said of an unknown key instead of a list of those there are; None for this list."""
        return None


def canonical(value: Any) -> str:
    """JSON with one spelling for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class DataIdentity(Section):
    """The data that a run reads, by what decides them: known before any of it is made."""

    name: Name
    digest: str


class DataSection(Section):
    """A section that describes data: `corpus` is one. A workload names its section (DATA).

    A new kind of data is a subclass, in a file of its own, and a field of `Config`. A section may describe several sets
    of files, each in a folder of its own with a manifest; a workload says which folder its parameters read.
    """

    name: Name

    @property
    def is_made_up(self) -> bool:
        """Whether there are no files: batches are made up."""
        return False

    @abstractmethod
    def decided_by(self, folder: str) -> dict[str, Any]:
        """All that decides the files of a folder; their manifest keeps it."""

    def mistakes(self) -> Iterable[str]:
        """What is wrong with the section as a whole, each with its key."""
        return ()

    def held_out_mistakes(self) -> Iterable[str]:
        """Why a block's convergence check cannot read held-out data, each with its key."""
        return ()

    def without_places(self) -> dict[str, Any]:
        """The section as a record keeps it: without folders, addresses and people."""
        return self.model_dump(mode="json")

    def digest(self, folder: str) -> str:
        """The `parameters_digest` of a folder's manifest."""
        return hashlib.sha256(canonical(self.decided_by(folder)).encode()).hexdigest()

    def identity(self, folder: str) -> DataIdentity:
        """The data by their name and the beginning of that digest."""
        return DataIdentity(name=self.name, digest=self.digest(folder)[:12])
