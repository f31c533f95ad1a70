"""The base classes of the configuration's sections, and the types of values that keys take."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from throughline.spec import NAME, DataIdentity, canonical

TOPOLOGY = r"[1-9]\d*n[1-9]\d*g"

Name = Annotated[str, Field(pattern=rf"^{NAME}$")]
Text = Annotated[str, Field(min_length=1)]
PositiveInt = Annotated[int, Field(ge=1)]
Sizes = Annotated[tuple[PositiveInt, ...], Field(strict=False)]
"""A list of whole numbers, read into a tuple, which cannot be changed."""
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
"""Map each regular expression to its meaning in words, for error messages."""


class Section(BaseModel):
    """A map of the configuration. Types are strict and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @classmethod
    def variant(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the class that validates these values. A subclass overrides it if its keys depend on a value."""
        return cls

    @classmethod
    def unknown(cls, key: str) -> str | None:
        """Return the error text for an unknown key, or None: then the error lists the keys of the section."""
        return None


class DataSection(Section):
    """A section that describes data, such as `corpus`. A workload names the section that it reads in `DATA`.

    To add a kind of data, write a subclass in a file of its own and add it to `Config` as a field. A section may
    describe several sets of files. Each set has its own folder with a manifest. The workload's `folder` says which
    of them a model with given parameters reads.
    """

    name: Name
    contents: ClassVar[str] = "data"
    """What the data are, in a word."""

    @property
    def is_synthetic(self) -> bool:
        """True if the section has no files and its batches are synthetic."""
        return False

    @abstractmethod
    def decided_by(self, folder: str) -> dict[str, Any]:
        """Return everything that decides the files of a folder. The folder's manifest stores it."""

    def mistakes(self) -> Iterable[str]:
        """Return the mistakes of the section as a whole. Each text begins with a key."""
        return ()

    def held_out_mistakes(self, section: str) -> Iterable[str]:
        """Return the reasons why a convergence check cannot read held-out data. Each text begins with a key.

        section: the name of this section.
        """
        shards = getattr(self, "shards", None)
        if shards is not None and not shards.test:
            yield f"convergence: it looks at held-out {self.contents}, and {section}.shards.test is 0"

    def without_places(self) -> dict[str, Any]:
        """Return the section as a record stores it: without folders, addresses and contact details."""
        return {key: without_folders(value) for key, value in self.model_dump(mode="json").items()}

    def digest(self, folder: str) -> str:
        """Return the SHA-256 of `decided_by`. The folder's manifest stores it as `parameters_digest`."""
        return hashlib.sha256(canonical(self.decided_by(folder)).encode()).hexdigest()

    def identity(self, folder: str) -> DataIdentity:
        """Return the data's name and the first 12 digits of their digest."""
        return DataIdentity(name=self.name, digest=self.digest(folder)[:12])


def without_folders(value: Any) -> Any:
    """Return a value of the configuration in which every path is only its last name. Addresses stay."""
    if isinstance(value, list):
        return [without_folders(entry) for entry in value]
    if isinstance(value, dict):
        return {key: without_folders(entry) for key, entry in value.items()}
    return Path(value).name if isinstance(value, str) and "/" in value and "://" not in value else value
