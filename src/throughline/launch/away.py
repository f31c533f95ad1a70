"""Which nodes of an acceptance are away, as the verdict states it: their names must not leave this machine."""

import re
from collections.abc import Mapping

from throughline import files
from throughline.launch.fleet import Settled
from throughline.spec import canonical


def text(settled: Settled) -> str:
    """Return why nodes cannot be measured now as a JSON map by their numbers, on one line and without names."""
    return canonical({str(node): _nameless(why, settled.names) for node, why in sorted(settled.away.items())})


def _nameless(text: str, names: Mapping[int, str]) -> str:
    hosts = {number: name.rpartition("@")[2] for number, name in names.items()}
    known = [(name, number) for number, host in hosts.items() for name in dict.fromkeys([host, host.split(".")[0]])]
    for name, number in sorted(known, key=lambda pair: -len(pair[0])):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", f"node {number}", text)
    return files.scrub(" ".join(text.split()))
