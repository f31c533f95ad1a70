r"""The program of train.py without marks: it prints a line for each step, as most programs do.

    throughline bench --timing 'step (?P<step>\d+), loss (?P<loss>\S+), (?P<ms>\S+) ms' --per-step 16 \
        --unit samples -- python train_logs.py --batch 16
"""

import time

from train import RANK, arguments, steps

if __name__ == "__main__":
    asked, before = arguments(), time.perf_counter()
    for step, loss in steps(asked.batch, asked.steps):
        now = time.perf_counter()
        if RANK == 0:
            print(f"step {step}, loss {loss:.4f}, {1000 * (now - before):.3f} ms", flush=True)
        before = now
