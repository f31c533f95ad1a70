# The form of every wildcard. Whether the configuration contains what a wildcard names is asked by the input functions.

from throughline import versions

WILDCARDS = dict(
    corpus="[a-z][a-z0-9_]*",
    name="[a-z][a-z0-9_]*",
    room="images|faces",
    day=r"\d+",
    sequence_length=r"[1-9]\d*",
    split="training|test",
    number=r"\d{4}",
    part=r"\d{4}",
    source_number=r"(_\d+)?",
    dump=r"[a-z0-9_-]+",
    benchmark="[a-z][a-z0-9_]*",
    batch=r"[1-9]\d*|program",
    precision="fp32|tf32|bf16|fp16|fp8|program",
    framework=versions.NAME,
    pins=r"[0-9a-f]{12}(-cuda\d+)?(-nccl)?",
    topology=r"[1-9]\d*n[1-9]\d*g",
    repeat=r"[1-9]\d*",
    quantity="batch|classes",
    imported="[a-z][a-z0-9_]*",
    place=r"node\d+|pair_\d+_\d+|all",
)


wildcard_constraints:
    **WILDCARDS,
