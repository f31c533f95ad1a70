"""A rank of `hf-trainer`: Trainer.train() of Hugging Face's transformers, one process per device.

The Trainer makes the steps in its own loop, and its callbacks tell our measured loop when a step has ended. A measured
step contains everything that the Trainer does in it: it gets a batch through the loaders of PyTorch and accelerate,
checks each loss for infinity (and waits for the device), computes the norm of all gradients even without clipping, and
writes its log. Meeting the other ranks and reading figures work as in `torch`.
"""

import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments, default_data_collator

from throughline.frameworks.rank import CLIP_AT, refuse_if
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.frameworks.torch.optimizers import build
from throughline.spec import RunSpec
from throughline.spec.job import FIGURES

Arguments = dict[str, Tensor]
"""The arguments of the model's `forward`, including the labels."""
Loop = Generator[None, Any, Any]
UNTIL_STOPPED = 2**31 - 1
"""The number of steps that we tell the Trainer. The measured loop stops it earlier."""


class HfTrainer(TorchDDP):
    takes_from_gpu = False
    keeps_freed_memory = False
    own_step = (
        "Trainer.train() makes it by itself, from one on_step_end to the next: deliver with PyTorch's loader and "
        "accelerate's, forward, backward, exchange, look at the loss, norm of all gradients, clip, update, log"
    )

    def __init__(self, spec: RunSpec, rank: int, local_rank: int, world: int, kind: str) -> None:
        super().__init__(spec, rank, local_rank, world, kind)
        self.job = spec.job
        self.training: Rows | None = None
        self.held_out: Rows | None = None

    def device(self) -> None:
        options, cpu, sharded = self.options, self.kind == "cpu", self.options.sharding != "none"
        refuse_if(options.clip not in ("none", "global_norm"), "the Trainer clips by the global norm only")
        refuse_if(not options.gradient_sync, "the Trainer always exchanges gradients")
        refuse_if(cpu and self.spec.precision == "fp16", "accelerate has fp16 on GPUs only")
        refuse_if(cpu and sharded, "accelerate has FSDP on GPUs only")
        zero1 = options.sharding == "zero1"
        refuse_if(zero1, "the Trainer splits weights, gradients and states together (FSDP2)")
        own_update = sharded and self.spec.optimizer.name != "adamw"
        refuse_if(own_update, "with FSDP the Trainer makes its own AdamW only")
        super().device()

    def model(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        with self.building():
            self.network = self.form.build(self.spec, facts, self.at)
        self.parameters = list(self.network.parameters())
        # As in all our frameworks, a loss is the mean over its own micro-batch, independent of other ranks and
        # micro-batches.
        self.network.model.accepts_loss_kwargs = False
        self.network.model.register_forward_hook(self._passed)
        self.passed: list[Tensor] = []

    def _passed(self, model: Any, given: Any, output: Any) -> None:
        if model.training:
            self.passed.append(output["loss"].detach())

    def data(self, arrays: dict[str, Any]) -> Arguments:  # type: ignore[override]
        """Return the arguments of the model's `forward`. The Trainer's loader moves them to the device."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return self.network.inputs(**tensors)  # type: ignore[no-any-return]

    def deliver(self, batch: Any) -> Any:
        return batch

    def optimizer(self) -> None:
        settings = self.spec.optimizer
        self.network.to(self.at)
        update = None if settings.name == "adamw" else build(settings, self.parameters)  # None: the Trainer makes it
        self.marks = Marks(self)
        self.trainer = Trainer(
            model=self.network.model,
            args=self.arguments(),
            train_dataset=self.training,
            eval_dataset=self.held_out,
            data_collator=default_data_collator,
            callbacks=[self.marks],
            optimizers=(update, None),
        )
        torch.manual_seed(self.spec.seed + 1 + self.replica)  # the Trainer has given every rank the same seed

    def arguments(self) -> TrainingArguments:
        """Return the specification as arguments of the Trainer.

        A single rank runs as a user starts it on one device, without a launcher: accelerate takes a process for one of
        several if LOCAL_RANK is set, and would wrap the model in DistributedDataParallel. Without LOCAL_RANK, the
        Trainer takes every GPU that it sees (DataParallel), so we leave it one.
        """
        if self.world == 1:
            os.environ.pop("LOCAL_RANK", None)
        spec, options, optimizer = self.spec, self.options, self.spec.optimizer
        batch, sharded = spec.size.batch_per_replica, options.sharding != "none"
        arguments = TrainingArguments(
            output_dir=os.environ.get("THROUGHLINE_NODE", tempfile.gettempdir()),
            max_steps=-1 if self.job else UNTIL_STOPPED,
            num_train_epochs=self.job.epochs if self.job else 1,
            eval_strategy="epoch" if self.job and self.job.held_out else "no",
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=batch,
            gradient_accumulation_steps=options.gradient_accumulation,
            optim="adamw_torch_fused",
            learning_rate=optimizer.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=optimizer.weight_decay,
            adam_beta1=optimizer.betas[0],
            adam_beta2=optimizer.betas[1],
            adam_epsilon=optimizer.epsilon,
            max_grad_norm=CLIP_AT if options.clip == "global_norm" else 0.0,
            fp16=spec.precision == "fp16",
            bf16=spec.precision == "bf16",
            torch_compile=options.compile,
            fsdp=sharded or None,
            fsdp_config={"reshard_after_forward": options.sharding == "full_shard"} if sharded else None,
            ddp_bucket_cap_mb=options.bucket_mb,
            use_cpu=self.kind == "cpu",
            seed=spec.seed,
            remove_unused_columns=False,
            accelerator_config={"dispatch_batches": False},
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        if self.world == 1 and self.kind == "cuda":
            arguments._n_gpu = min(arguments.n_gpu, 1)
        return arguments

    def set_rate(self, rate: float) -> None:
        self.update = self.trainer.optimizer
        super().set_rate(rate)

    def samples(self, training: Arguments, held_out: Arguments | None) -> None:
        self.training, self.held_out = Rows(training), Rows(held_out) if held_out else None

    def drive(self, loop: Loop, batches: Callable[[], list[Any]], heart: Any) -> Any:
        if self.job is None:
            self.trainer.train_dataset = Stream(batches, self.world)
        self.marks.loop, self.marks.heart = loop, heart
        self.figures = self.trainer.train().metrics
        self.parallel = self.trainer.model_wrapped
        return self.marks.seen

    def told(self) -> dict[str, float]:
        figures = {**self.figures, **self.marks.evaluation, "global_step": self.trainer.state.global_step}
        return {name: value for name, value in figures.items() if name in FIGURES}

    def seconds(self, marks: list[Any]) -> list[float]:
        """Return the seconds between marks without the evaluations, which lie between two epochs."""
        seconds = super().seconds(marks)
        for step, taken in self.marks.evaluated.items():
            if step < len(seconds):
                seconds[step] -= taken
        return seconds

    def skipped(self) -> int:
        return self.marks.skipped

    def update_settings(self) -> dict[str, Any]:
        self.update = self.trainer.optimizer
        return super().update_settings()


class Marks(TrainerCallback):  # type: ignore[misc]
    """Callbacks that tell the measured loop about every step, and stop the Trainer when the loop has seen enough."""

    loop: Loop
    heart: Any

    def __init__(self, rank: HfTrainer) -> None:
        self.rank, self.skipped, self.seen = rank, 0, None
        self.rates = rank.spec.optimizer.rates()
        self.looked, self.evaluated, self.evaluation = 0, dict[int, float](), dict[str, float]()

    def on_train_begin(self, *given: Any, **named: Any) -> None:
        next(self.loop)

    def on_step_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if self.rates:  # the Trainer's own scheduler has set the constant rate after the step before
            self.rank.set_rate(self.rates(state.global_step + 1))

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        rank = self.rank
        self.skipped += rank.trainer.accelerator.optimizer_step_was_skipped
        loss = torch.stack(rank.passed).mean()
        rank.passed.clear()
        self._tell(loss)
        control.should_training_stop = control.should_training_stop or self.seen is not None

    def on_train_end(self, *given: Any, **named: Any) -> None:
        if self.seen is None:
            self._tell(None)

    def _tell(self, loss: Tensor | None) -> None:
        try:
            self.loop.send(loss)
        except StopIteration as end:
            self.seen = end.value

    def on_epoch_end(self, *given: Any, **named: Any) -> None:
        if self.rank.job:  # an evaluation begins
            self.rank.sync()
            self.began, self.looked = time.monotonic(), 0
            self.heart.phase("evaluation")

    def on_prediction_step(self, *given: Any, **named: Any) -> None:
        self.looked += 1
        self.heart.step(self.looked)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **named: Any) -> None:
        self.rank.sync()
        self.evaluated[state.global_step] = time.monotonic() - self.began
        self.evaluation = metrics
        self.heart.phase("training", state.max_steps)
        self.heart.step(state.global_step)


class Rows(Dataset[Arguments]):
    """The samples of a job, in memory. The Trainer's loader shuffles them and divides them among the ranks."""

    def __init__(self, whole: Arguments) -> None:
        self.whole = whole

    def __len__(self) -> int:
        return len(next(iter(self.whole.values())))

    def __getitem__(self, index: int) -> Arguments:
        return {name: tensor[index] for name, tensor in self.whole.items()}


class Stream(IterableDataset[Arguments]):
    """The samples of this rank's batches. accelerate divides what it reads among the ranks, a batch for each in turn,
    so this stream repeats each batch for every rank, and this rank takes it once."""

    def __init__(self, batches: Callable[[], list[Arguments]], world: int) -> None:
        self.batches, self.world = batches, world

    def __iter__(self) -> Iterator[Arguments]:
        while True:
            for batch in self.batches():
                samples = [dict(zip(batch, sample, strict=True)) for sample in zip(*batch.values(), strict=True)]
                for _ in range(self.world):
                    yield from samples
