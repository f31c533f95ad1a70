"""Products of half precision on a CPU without units for it: PyTorch computes them in fp32, and rounds the results.

A GPU's tensor cores do the same: they multiply numbers of 16 bits, add the products up in fp32 and round each sum once.
PyTorch's own kernels for such a CPU give these results too, up to the order of the sums, but take about ten times as
long as products in fp32.

The kernels of matrix products, convolutions and attention are replaced where PyTorch looks them up, so passes forward
and backward, compiled code and every framework on PyTorch use them. Operands of other types, and of several types, go
to PyTorch's kernels, which compute or refuse them as always.
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor


def _asked(name: str) -> Callable[[], bool]:
    """Return the function that asks PyTorch; it asks once, because every product of a step needs the answer."""
    onednn: Any = torch.backends.mkldnn
    return cache(lambda: onednn.is_available() and bool(getattr(torch.ops.mkldnn, name)()))


FAST: dict[torch.dtype, Callable[[], bool]] = {
    torch.bfloat16: _asked("_is_mkldnn_bf16_supported"),
    torch.float16: _asked("_is_mkldnn_fp16_supported"),
}
"""Map each 16-bit type to the question by which PyTorch itself finds out if oneDNN has fast products of it here."""


class Operation(NamedTuple):
    """operands: so many first arguments have the 16-bit type. results: so many first results have it; a later one, the
    sums of exponentials of attention, is fp32 in any case."""

    operands: int
    results: int = 1


OPERATIONS = {
    "mm": Operation(2),
    "addmm": Operation(3),
    "bmm": Operation(2),
    "baddbmm": Operation(3),
    "convolution": Operation(3),
    "convolution_backward": Operation(3, 3),
    "_scaled_dot_product_flash_attention_for_cpu": Operation(3),
    "_scaled_dot_product_flash_attention_for_cpu_backward": Operation(4, 3),
}
WRITTEN = ("mm", "addmm", "bmm", "baddbmm")
"""The operations that also exist with a tensor for the result (`out`), which compiled code uses."""


def slow(kind: torch.dtype | None) -> bool:
    """Return whether products of this type are slow on this CPU."""
    return kind in FAST and not FAST[kind]()


def words(kind: torch.dtype) -> str:
    """Return the words of a record for how products of this type are computed."""
    name = str(kind).removeprefix("torch.")
    return f"of {name} numbers in float32, each result rounded to {name}: this CPU has no units for {name}"


@cache
def compute_in_fp32() -> Any:
    """From now on, compute the products of 16-bit types that are slow on this CPU in fp32.

    Return the library of the kernels. PyTorch forgets them when it goes, so the cache keeps it.
    """
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
        for name, operation in OPERATIONS.items():
            _replace(library, name, partial(_computed, operation))
        for name in WRITTEN:
            _replace(library, f"{name}.out", partial(_written, OPERATIONS[name]))
    return library


def _replace(library: Any, name: str, kernel: Callable[..., Any]) -> None:
    given = torch.library.get_kernel(f"aten::{name}", "CPU")
    library.impl(name, partial(kernel, given.call_boxed), "CPU", with_keyset=True, allow_override=True)


def _computed(operation: Operation, given: Any, keys: Any, *arguments: Any, **named: Any) -> Any:
    if (kind := _slow_kind(arguments[: operation.operands])) is None:
        return given(keys, *arguments, **named)
    results = given(keys, *map(_wide, arguments), **{name: _wide(argument) for name, argument in named.items()})
    if isinstance(results, Tensor):
        return results.to(kind)
    # The gradient of something that needs none is None.
    return tuple(
        result.to(kind) if place < operation.results and result is not None else result
        for place, result in enumerate(results)
    )


def _written(operation: Operation, given: Any, keys: Any, *arguments: Any, out: Tensor, **named: Any) -> Tensor:
    if _slow_kind((*arguments[: operation.operands], out)) is None:
        result: Tensor = given(keys, *arguments, out=out, **named)
        return result
    named = {name: _wide(argument) for name, argument in named.items()}
    wide = given(keys, *map(_wide, arguments), out=out.new_empty(0, dtype=torch.float32), **named)
    return out.resize_(wide.shape).copy_(wide)


def _slow_kind(operands: tuple[Any, ...]) -> torch.dtype | None:
    """Return the 16-bit type that all these operands have; None if there is none, or if its products are fast here."""
    kinds = {operand.dtype for operand in operands if isinstance(operand, Tensor)}
    (kind,) = kinds if len(kinds) == 1 else (None,)
    return kind if slow(kind) else None


def _wide(argument: Any) -> Any:
    return argument.float() if isinstance(argument, Tensor) and argument.dtype in FAST else argument
