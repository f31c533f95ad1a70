"""The cases whose counts are committed (expected.csv), and which of them break a rule today. Standard library only."""

from collections.abc import Iterator
from itertools import product

OURS = ("fp32", "tf32", "bf16", "fp16")
HALF = ("bf16", "fp16")
CARDS = {"V100": ("fp32", "fp16"), "T4": ("fp32", "fp16", "bf16"), "A100": ("tf32", "bf16", "fp16")}
SHARDINGS = ("none", "zero1", "shard_grad_op", "full_shard")

KNOWN: dict[str, str] = {
    f"mixture-tiny {precision}{option}": "PyTorch's grouped product reads where groups end on the host, except in bf16"
    for precision in ("fp32", "fp16")
    for option in ("", " gradient_accumulation=2", " activation_checkpointing=true")
} | {
    f"{case} framework=hf-loop{ranks}": "transformers reads a value of a batch when it makes a causal mask"
    for case, ranks in (("gpt2-tiny bf16", " ranks=8"), ("llama-tiny bf16", ""))
}
"""Map a case to the reason why it breaks a rule of the timed window today. A case that keeps the rules may not stand
here: who fixes it removes the line."""


def cases() -> list[str]:
    """Return every case, sorted."""
    every = [*alone(), *together(), *split(), *tables(), *faces(), *decoders(), *libraries(), *untrained(), *cards(),
             *compiled(), *recorded()]  # fmt: skip
    return sorted({" ".join(case.split()) for case in every})


def attending() -> list[str]:
    """Return the cases of our own networks with attention."""
    return [case for case in cases() if case.startswith(("bert-tiny", "gpt2-tiny")) and "framework=" not in case]


def alone() -> Iterator[str]:
    """One rank: every precision with every option."""
    everywhere = ("", *(f"clip={kind}" for kind in ("value", "norm", "global_norm")))
    everywhere += tuple(f"optimizer={name}" for name in ("adam", "lamb", "sgd"))
    everywhere += ("gradient_accumulation=2", "optimizer=lamb clip=global_norm")
    recomputed = "activation_checkpointing=true"
    more = {
        "bert-tiny": ("dropout=0", "remove_padding=true", recomputed, f"remove_padding=true {recomputed}"),
        "gpt2-tiny": ("dropout=0", recomputed),
        "resnet-tiny": ("channels_last=false",),
    }
    for model, options in more.items():
        yield f"{model} tf32"  # the kernels are those of fp32
        for precision, option in product(("fp32", *HALF), (*everywhere, *options)):
            yield f"{model} {precision} {option}"


def together() -> Iterator[str]:
    """Eight ranks with whole replicas: every kind of sharding."""
    options = ("", "optimizer=lamb", "clip=norm", "clip=global_norm", "gradient_accumulation=2")
    options += ("activation_checkpointing=true",)
    for precision, sharding, option in product(HALF, SHARDINGS, options):
        yield f"bert-tiny {precision} ranks=8 sharding={sharding} {option}"
    for sharding in SHARDINGS:
        yield f"gpt2-tiny bf16 ranks=8 sharding={sharding}"
    for precision, option in product(HALF, ("", "optimizer=sgd", "gradient_accumulation=2")):
        yield f"resnet-tiny {precision} ranks=8 {option}"
    for precision in HALF:
        yield f"bert-tiny {precision} ranks=8 remove_padding=true"
        yield f"bert-tiny {precision} ranks=8 gradient_sync=false"
        yield f"bert-tiny {precision} ranks=8 warmup=99"  # DistributedDataParallel reads its timers at times


def split() -> Iterator[str]:
    """Eight ranks of which two or four share a replica."""
    options = ("", "activation_checkpointing=true", "sharding=zero1", "clip=global_norm", "optimizer=lamb")
    options += ("gradient_accumulation=2",)
    for precision, tensor, option in product(HALF, (2, 4), options):
        yield f"gpt2-tiny {precision} ranks=8 tensor_parallel={tensor} {option}"


def tables() -> Iterator[str]:
    """Wide & deep, with its tables on each rank. How many rows split tables exchange depends on values, and the fake
    driver has none."""
    for precision, update, ranks in product(("fp32", "bf16"), ("lazy", "dense"), (1, 8)):
        yield f"wide-deep {precision} ranks={ranks} update={update}"


def faces() -> Iterator[str]:
    """Faces, with every way of keeping the classifier."""
    kinds = ("data_parallel", "model_parallel", "partial")
    for precision, classifier, ranks in product(("fp32", *HALF), kinds, (1, 8)):
        yield f"iresnet-tiny {precision} ranks={ranks} classifier={classifier}"
    yield "mobilefacenet-y1 bf16"


def decoders() -> Iterator[str]:
    """Decoders and their layouts. Which experts a token chooses depends on values, and the fake driver has none."""
    for precision, option in product(("fp32", *HALF), ("", "gradient_accumulation=2", "activation_checkpointing=true")):
        yield f"llama-tiny {precision} {option}"
        yield f"mixture-tiny {precision} {option}"
    cut = "tensor_parallel=2"
    for option in ("", "sharding=zero1", "sharding=full_shard", cut, f"sharding=full_shard {cut}"):
        yield f"llama-tiny bf16 ranks=8 {option}"
    yield "mixture-tiny bf16 ranks=8 sharding=full_shard"
    yield "llama-tiny fp8"
    for option in ("", " attention_kernel=flex", " attention=document attention_kernel=flex"):
        yield f"llama-tiny bf16 compile=true{option}"


def libraries() -> Iterator[str]:
    """transformers' own models under autocast, without the Trainer."""
    for precision in ("fp32", *HALF):
        yield f"bert-tiny {precision} framework=hf-loop"
    yield "gpt2-tiny bf16 framework=hf-loop ranks=8"
    yield "llama-tiny bf16 framework=hf-loop"


def untrained() -> Iterator[str]:
    """One call of what trains nothing."""
    for layer in ("bert-layer", "gpt2-layer", "t5-encoder-layer", "t5-decoder-layer"):
        for precision, attention in product(("fp32", *HALF, "fp8"), ("sdpa", "eager")):
            yield f"{layer} {precision} attention={attention}"
    for model, precision in product(("matmul", "vector", "copies"), (*OURS, "fp8")):
        yield f"{model} {precision}"
    for model, precision in product(("all-reduce", "all-gather", "reduce-scatter", "all-to-all"), ("fp32", "bf16")):
        yield f"{model} {precision} ranks=8"


def cards() -> Iterator[str]:
    """Every form on older cards: it finds kernels in every precision that the card has, or is refused with a reason."""
    models = ("bert-tiny", "bert-tiny dropout=0", "bert-tiny remove_padding=true", "gpt2-tiny", "gpt2-tiny dropout=0",
              "resnet-tiny", "iresnet-tiny", "bert-layer", "gpt2-layer")  # fmt: skip
    for model, (card, precisions) in product(models, CARDS.items()):
        name, _, option = model.partition(" ")
        yield from (f"{name} {precision} card={card} {option}" for precision in precisions)


def compiled() -> Iterator[str]:
    """The compiler is slow, so there are few."""
    yield "bert-tiny bf16 compile=true"
    yield "bert-tiny bf16 compile=true remove_padding=true"
    yield "bert-tiny bf16 compile=true ranks=8"
    yield "gpt2-tiny bf16 compile=true"
    yield "gpt2-tiny bf16 compile=true ranks=8 sharding=full_shard"
    yield "resnet-tiny bf16 compile=true"


def recorded() -> Iterator[str]:
    """Whole steps as a CUDA graph, and what cannot be one."""
    yield "bert-tiny bf16 cuda_graph=step compile=true"
    for option in ("", "clip=norm optimizer=lamb", "gradient_accumulation=2 clip=global_norm"):
        yield f"bert-tiny bf16 cuda_graph=step {option}"
        yield f"bert-tiny fp16 cuda_graph=step {option}"
        yield f"bert-tiny fp16 cuda_graph=step ranks=8 {option}"
    yield "bert-tiny fp32 cuda_graph=step optimizer=adam clip=value"
    for precision in HALF:
        yield f"gpt2-tiny {precision} cuda_graph=step ranks=8"
        yield f"resnet-tiny {precision} cuda_graph=step optimizer=sgd"
        yield f"resnet-tiny {precision} cuda_graph=step optimizer=sgd ranks=8"
    yield "bert-tiny bf16 cuda_graph=step ranks=8 compile=true"
    yield "bert-tiny bf16 cuda_graph=step ranks=8 gradient_sync=false"
    yield "bert-tiny fp16 cuda_graph=step ranks=8 sharding=zero1 optimizer=lamb clip=norm"
    for refused in ("activation_checkpointing=true", "remove_padding=true", "ranks=8 sharding=full_shard"):
        yield f"bert-tiny bf16 cuda_graph=step {refused}"
    yield "gpt2-tiny bf16 cuda_graph=step ranks=8 tensor_parallel=2"
    yield "iresnet-tiny bf16 cuda_graph=step"
    yield "wide-deep fp32 cuda_graph=step update=lazy"
