"""Start a script of Hugging Face's Trainer so that it writes marks for Throughline. The script stays as it is.

    throughline bench --timing marks --per-step 32 --unit samples -- python trainer_marks.py run_clm.py --do_train ...

A mark waits for the GPU, which costs a little time. So only every tenth step writes one.
"""

import os
import runpy
import sys
import time

import torch
from transformers import TrainerCallback, trainer

EVERY = 10


class Marks(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        path = os.environ.get("THROUGHLINE_MARKS")
        if path and state.is_world_process_zero and state.global_step % EVERY == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            samples = EVERY * args.train_batch_size * args.gradient_accumulation_steps * args.world_size
            with open(path, "a") as file:
                print(time.monotonic(), state.global_step, samples, file=file)


trainer.DEFAULT_CALLBACKS.append(Marks)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
