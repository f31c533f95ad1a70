"""What all sections of the configuration share: their base classes, the types of their keys, and where paths lead."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import types
import typing
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationInfo
from pydantic.fields import FieldInfo

from throughline import files
from throughline.spec import NAME, DataIdentity, Part, canonical
from throughline.spec.program import NAME as PROGRAM_NAME

HOST = r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$"
UNIT = r"^[a-z]+$"
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
    HOST: "each entry is the name of one host, without a range such as [1-8]",
    rf"^{TOPOLOGY}$": "a topology is <nodes>n<devices per node>g, both from 1 on, such as 1n2g or 4n8g",
    r"^https?://[^\s?#]+$": "an address begins with http:// or https:// and has no blank, ? or #",
    r"^[!-~]+(@|://)[!-~]+$": "an e-mail or web address is needed, such as you@your.org",
    r"^[A-Z]{3}$": "a currency is three capital letters, such as EUR",
    rf"^{NAME}$": "a name has lower-case letters, digits and _, and begins with a letter",
    rf"^{PROGRAM_NAME}$": "the name of a program has lower-case letters, digits and -, and begins with a letter",
    UNIT: "a unit is one word in small letters and in the plural, such as tokens",
}
"""Map each regular expression to its meaning in words, for error messages."""


@dataclasses.dataclass
class ConfigPaths:
    """Where the relative paths of a configuration lead.

    A path leads into the working directory. If nothing is there, it leads into the folder of the workflow, which may be
    another one (`snakemake --directory`): so presets find the files that come with the workflow.

    taken: path in the configuration -> path in the workflow's folder. missing: the paths that lead to nothing.
    """

    workflow: Path
    taken: dict[str, str] = dataclasses.field(default_factory=dict)
    missing: dict[str, None] = dataclasses.field(default_factory=dict)

    def find(self, path: str) -> str:
        """Return the path if it exists here, otherwise that of the workflow's file, otherwise the path as it is."""
        if os.path.isabs(path) or os.path.exists(path) or self.workflow == Path.cwd():
            return path
        if not (self.workflow / path).exists():
            self.missing[path] = None
            return path
        self.taken[path] = files.from_here(self.workflow / path)
        return self.taken[path]

    def remarks(self) -> list[str]:
        """Return a line for each path that does not lead into the working directory."""
        used = [
            f"{path} is not in this folder; the workflow's own is used: {file}" for path, file in self.taken.items()
        ]
        return used + self.lost()

    def lost(self) -> list[str]:
        """Return a line for each path that leads to nothing."""
        return [f"{path} is neither in this folder nor in {self.workflow}" for path in self.missing]


def lead(path: str, info: ValidationInfo) -> str:
    """Return where a path of the configuration leads. `~` is the home folder, as in a shell."""
    path = os.path.expanduser(path)
    return info.context.find(path) if isinstance(info.context, ConfigPaths) else path


FilePath = Annotated[Text, AfterValidator(lead)]
"""The path of a file or a folder that the user has, or that comes with the workflow."""


class Section(BaseModel):
    """A map of the configuration. Types are strict and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def variant(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the class that validates these values. A subclass overrides it if its keys depend on a value."""
        return cls

    @classmethod
    def hint(cls, keys: Sequence[Any], raw: Mapping[str, Any]) -> str | None:
        """Return what the error for an unknown key says, if it is more than the keys that the section has.

        keys: the path of the key; raw: the values of this section, as the user wrote them.
        """
        return None


class Shards(Section):
    """How many files the samples are written into."""

    training: PositiveInt = Field(8, description="files that training reads")
    test: NonNegativeInt = Field(2, description="files held back from training")


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


def fields_of(model: type[BaseModel] | type[Part]) -> dict[str, FieldInfo]:
    """Return the keys of a section or of a part of a specification, with their types, descriptions and defaults."""
    if issubclass(model, BaseModel):
        return model.model_fields
    hints = typing.get_type_hints(model, include_extras=True)
    fields = dataclasses.fields(typing.cast(Any, model))
    return {field.name: FieldInfo.from_annotated_attribute(hints[field.name], field) for field in fields}


def is_model(annotation: Any) -> bool:
    """True if the annotation is a map with keys of its own."""
    return isinstance(annotation, type) and issubclass(annotation, (Section, Part))


def is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def branches(annotation: Any) -> list[Any]:
    """Return the types of a union without null, or the type itself, all without their constraints."""
    plain = strip(annotation)
    if not is_union(plain):
        return [plain]
    return [strip(option) for option in typing.get_args(plain) if option is not type(None)]


def strip(annotation: Any) -> Any:
    """Return the annotation without its constraints."""
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation
