"""A map of the configuration, and the kinds of values that its keys take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

NAME = r"[a-z][a-z0-9_]*"
FRAMEWORK = r"[a-z][a-z0-9-]*"
TOPOLOGY = r"[1-9]\d*n[1-9]\d*g"

Name = Annotated[str, StringConstraints(pattern=rf"^{NAME}$")]
FrameworkName = Annotated[str, StringConstraints(pattern=rf"^{FRAMEWORK}$")]
TopologyName = Annotated[str, StringConstraints(pattern=rf"^{TOPOLOGY}$")]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Scaling = Literal["weak", "strong"]
Extra = Literal["aa", "synthetic", "noexchange", "max_batch"]
PositiveInt = Annotated[int, Field(ge=1)]
CountingInt = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
HttpAddress = Annotated[str, StringConstraints(pattern=r"^https?://[^\s?#]+$")]
Contact = Annotated[str, StringConstraints(pattern=r"^[!-~]+(@|://)[!-~]+$")]

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
