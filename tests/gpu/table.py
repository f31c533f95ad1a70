"""The table of counts: one row for each case, from what the fake CUDA driver has written down. Standard library
only."""

from typing import Any

MIB = 1 << 20
COLUMNS = (
    "case", "kernels", "triton", "cublas", "cudnn", "nccl", "nccl_kib", "copies", "memsets", "graphs", "peak_mib",
    "waits", "pageable", "mallocs", "compiled", "note",
)  # fmt: skip


def row(told: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a case from its result."""
    if "steps" not in told:
        note = f"unsupported: {told['unsupported']}" if "unsupported" in told else told["error"].splitlines()[0]
        return {"case": told["name"], "note": note}
    steps = [counts(step) for step in told["steps"]]
    last = steps[-1]
    return {
        "case": told["name"],
        **last,
        "peak_mib": f"{told['peak_bytes'] / MIB:.1f}",
        "compiled": told["compiled"],
        "note": "" if all(step == last for step in steps) else "the steps differ",
    }


def counts(step: list[list[Any]]) -> dict[str, Any]:
    """Return the numbers of a step's calls by their kinds."""

    def of(kind: str, *words: str) -> int:
        return sum(count for found, name, count, _ in step if found == kind and all(word in name for word in words))

    work = ("kernel", "triton", "cublas", "cudnn", "nccl", "copy", "memset")
    sent = sum(size for kind, _, _, size in step if kind == "nccl")
    return {
        "kernels": of("kernel"),
        **{kind: of(kind) for kind in ("triton", "cublas", "cudnn", "nccl")},
        "nccl_kib": round(sent / 1024),
        "copies": of("copy"),
        "memsets": of("memset"),
        "graphs": of("graph", "launch"),
        "by_host": sum(map(of, work)) - of("replayed") + of("graph", "launch"),
        "waits": of("sync"),
        "pageable": of("copy", "pageable"),
        "mallocs": of("runtime", "cudaMalloc") + of("runtime", "cudaHostAlloc") + of("runtime", "cudaFree"),
    }
