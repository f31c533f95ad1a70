"""A small training program, and the four lines that let Throughline measure it: the function `mark`.

    throughline bench --timing marks --per-step 16 --unit samples -- python train.py --batch 16

It trains a transformer on random tokens with plain PyTorch, on GPUs or on a CPU. torchrun starts it on several devices.
`train_logs.py` is the same program without marks.
"""

import argparse
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

VOCABULARY, LENGTH, WIDTH = 1000, 32, 64
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
ON_GPU = torch.cuda.is_available()


def mark(step: int, samples: int) -> None:
    """Append a mark: seconds of the monotonic clock, the step, and the samples of all devices since the last mark."""
    path = os.environ.get("THROUGHLINE_MARKS")
    if path and RANK == 0:
        with open(path, "a") as file:
            print(time.monotonic(), step, samples, file=file)


def steps(batch: int, count: int) -> Iterator[tuple[int, float]]:
    """Train, and yield the number and the loss of each step when the device has finished it."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if ON_GPU else torch.device("cpu")
    torch.manual_seed(RANK)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model: nn.Module = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), encoder, nn.Linear(WIDTH, VOCABULARY)).to(device)
    if WORLD > 1:
        dist.init_process_group("nccl" if ON_GPU else "gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (batch, LENGTH), device=device)
    for step in range(1, count + 1):
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step, loss.item()  # item() waits for the device
    if WORLD > 1:
        dist.destroy_process_group()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16, help="samples per device")
    parser.add_argument("--steps", type=int, default=10_000)
    return parser.parse_args()


if __name__ == "__main__":
    asked = arguments()
    for step, _ in steps(asked.batch, asked.steps):
        mark(step, asked.batch * WORLD)
