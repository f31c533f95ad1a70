"""Logs of others: their content tells their kind, each kind has the rule of its source, and a bad file gives an error.

The logs below are synthetic, but every line has the form of its program. Their figures make a rule visible: the values
that the rule drops are 1000 times too fast or too slow.
"""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import report_fixture
from throughline import log_kinds, records
from throughline.comparables import exports
from throughline.comparables.imported import LARGEST, imported, of_file
from throughline.files import UserError
from throughline.log_kinds.kind import FACTS, plain
from throughline.report.render import imports, table_files

PLACES = [folder / "shared" / "reference" / "logs" for folder in Path(__file__).parents[4:]]
SHARED = next(filter(Path.is_dir, PLACES), PLACES[0])
MPIRUN = "Thu Dec 17 15:05:20 2020[1,0]<stdout>:"
CLOCK = 1_600_000_000.0


def dll(text: str, year: int = 2023) -> str:
    return f"DLL {year}-06-01 10:00:00.123456 - {text}\n"


BERT_TORCH = (
    "device: cuda:0 n_gpu: 1, distributed training: True, 16-bits training: True\n"
    "device: cuda:1 n_gpu: 1, distributed training: True, 16-bits training: True\n"
    + dll("PARAMETER Config : [\"Namespace(config_file='bert_config_base.json', fp16=True)\"]")
    + dll("PARAMETER batch_size_per_gpu : 32 ")
    + dll("Training Epoch: 0 Training Iteration: 7  average_loss : 7.985  step_loss : 8.0078125  learning_rate : 0.1 ")
    + dll(" e2e_train_time : 1.0  training_sequences_per_second : 250.5  final_loss : 10.0")
)
RESNET_TORCH = dll(
    "PARAMETER data : /x  arch : resnet50  batch_size : 256  amp : True  distributed : False "
) + "".join(
    dll(f"Epoch: 0 Iteration: {i}  train.loss : 7.0  train.total_ips : {9 if i <= 9 else 400 + i} img/s")
    for i in range(1, 21)
)
SUMMARY = dll("Summary: train.loss : 7.0  train.total_ips : 300.00 img/s")
BERT_TENSORFLOW = "+ batch_size=64\n+ num_gpus=8\n+ precision=fp16\n+ bert_model=base\n" + "".join(
    ("Skipping time record for  1  due to checkpoint-saving/warmup overhead\n" if i < 3 else "")
    + dll(f"Iteration: {i}  throughput_train : {1 if i < 2 else 100 + i} seq/s mlm_loss : 10.0 ")
    for i in range(1, 6)
)
AVERAGE = dll(" throughput_train : 77.125 seq/s")
RESNET_TENSORFLOW = (
    dll("PARAMETER arch : resnet50  mode : training_benchmark  batch_size : 256  amp : False ")
    + "Num GPUs 8\nPer-GPU Batch Size 256\n"
    + "".join(dll(f"(0, {i}) total_ips : {1 if i < 250 else i} ") for i in range(200, 300, 10))
    + dll("() train_throughput : 42.5 images/s")
)
RESNET_MXNET = (
    dll("PARAMETER arch : resnetv15  num_layers : 50  gpus : [0, 1]  dtype : float16  amp : False  batch_size : 512 ")
    + "".join(
        dll(f"Epoch: {i}  train.loss : 6.0  train.ips : {speed} images/s") for i, speed in enumerate((1, 300, 600))
    )
    + dll("Summary: train.loss : 6.0  train.ips : 450.0 images/s")
)
PADDLE = "Namespace(batch_size=32, logging_steps=10, model_name_or_path='bert-base-uncased', use_amp=0)\n" + "".join(
    f"tobal step: {i}, epoch: 0, batch: {i - 1}, loss: 9.0, ips: {1 if i <= 100 else i} sequences/sec\n"
    for i in range(10, 130, 10)
)
PADDLE_PRESENT = "Namespace(batch_size=96, model_name_or_path='bert-base-uncased', use_amp=True)\n" + "".join(
    f"total step: {10 * i}, epoch: 0, batch: 1, loss: 9.0, ips: {i if i > 10 else 9999} sequences/sec\n"
    for i in range(1, 31)
)
GLUON = "INFO:root:Namespace(batch_size=16, dtype='float16', gpus='0,1', model='bert_12_768_12_x')\n" + "".join(
    f"INFO:root:[step {i}]\tmlm_loss=1.0\tthroughput={9000 if i < 10 else i}.0K tks/s\tlr=0.1 time=9.0\n"
    for i in range(15)
)
DLPERF = "".join(
    f"[step {step}]\tmlm_loss=9.24962\tthroughput=1.0K tks/s\tlr=0.1 time=9.0, "
    f"latency={1 if step < 100 else latency} ms/batch\n"
    for step in range(200)
    for latency in (100.0, 200.0)
)
ONEFLOW = (
    "model = resnet50\nbatch_size_per_device = 128\ngpu_num_per_node = 8\nnum_nodes = 2\nuse_fp16 = True\n"
    f"train: epoch 0, iter 20, loss: 7.0, top_1: 0.0, top_k: 0.0, samples/s: 1.0 {CLOCK}\n"
    f"train: epoch 0, iter 120, loss: 7.0, top_1: 0.0, top_k: 0.0, samples/s: 1.0 {CLOCK + 50}\n"
)
ONEFLOW_GPT = (
    "  num_nodes ............ 1\n  num_gpus_per_node ............ 8\n  micro_batch_size ............ 4\n"
    "  hidden_size ............ 768\n  num_layers ............ 12\n  fp16 ............ True\n"
    "| step | micro_batches | samples | throughput | latency | loss |\n| --- | --- | --- | --- | --- | --- |\n"
    "| 10       | 10              | 320             | 1.00000    | 8.74569    | 11.27187   |\n"
    "| 20       | 20              | 640             | 30.00000   | 0.90000    | 10.27187   |\n"
    "| 30       | 30              | 960             | 32.00000   | 0.90000    | 9.27187   |\n"
)
MEGATRON = (
    "  world_size ................ 8\n  micro_batch_size .......... 4\n  hidden_size ............... 1024\n"
    "  num_layers ................ 24\n  fp16 ...................... True\n  bf16 ...................... False\n"
    + "".join(
        f" iteration {i:8d}/     500 | consumed samples: 1 | elapsed time per iteration (ms): {ms} | learning rate: 1 |"
        f" global batch size:    64 | lm loss: 9.0E+00 |\n"
        for i, ms in ((100, 99999.0), (200, 400.0), (300, 600.0))
    )
)
DEEPSPEED = (
    "[INFO] [config.py:1] DeepSpeedEngine configuration:\n   train_micro_batch_size_per_gpu ...... 4\n"
    "   world_size ............. 8\n   fp16_enabled ............. True\n   bfloat16_enabled ............. False\n"
    "[INFO] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=90.5, CurrSamplesPerSec=1.0, Mem=1GB\n"
    "[INFO] epoch=0/micro_step=20/global_step=20, RunningAvgSamplesPerSec=100.5, CurrSamplesPerSec=1.0, Mem=1GB\n"
)
TRAINER = (
    '{"train_batch_size": 8, "global_step": 256, "log_history": [{"loss": 7.0, "step": 10},'
    ' {"step": 256, "train_runtime": 358.4, "train_samples_per_second": 11.43}]}'
)
NANOGPT = (
    "tokens per iteration will be: 1,000\nnumber of parameters: 123.59M\nstep 0: train loss 10.9, val loss 10.9\n"
    + "".join(f"iter {i}: loss 10.0, time {9999 if i < 5 else 100.0 * i:.2f}ms, mfu 30.00%\n" for i in range(8))
    + "step 8: train loss 9.0, val loss 9.0\nsaving checkpoint to out\niter 8: loss 9.0, time 99999.00ms, mfu 30.00%\n"
)
NANOGPT_BENCH = "time per iteration: 250.0000ms, MFU: 30.00%\n"
TORCHTITAN = (
    "[rank0]:[titan] 2025-06-01 10:00:00,000 - root - INFO - Building 1-D device mesh with ['dp_shard'], [8]\n"
    "[rank0]:[titan] 2025-06-01 10:00:00,000 - root - INFO - Model llama3 8B size: 8,030,261,248 total parameters\n"
    + "".join(
        f"[rank{rank}]:[titan] 2025-06-01 - root - INFO - \x1b[31mstep: {i:2d}  \x1b[32mloss:  8.0  \x1b[33mmemory: "
        f"30.00GiB(38.00%)  \x1b[34mtps: {5762 if i == 90 else 1:,}  \x1b[36mmfu: 33.00%\x1b[39m\n"
        for i in range(10, 101, 10)
        for rank in (0, 1)
    )
)
LITGPT_LINE = "Epoch 1 | iter {0} step {0} | loss train: 10.958, val: n/a | iter time: 100.00 ms (step)"
LITGPT = (
    "{'devices': 2,\n 'model_name': 'pythia-14m',\n 'num_nodes': 1,\n 'precision': 'bf16-true',\n"
    " 'train': TrainArgs(global_batch_size=8, micro_batch_size=4, max_seq_length=None)}\n"
    + "".join(f"{LITGPT_LINE.format(i)} remaining time: 0:00:09\n" for i in (1, 2))
    + "| Performance\n| - Total tokens  : 16,384\n| - Training Time : 8.00 s\n| - Tok/sec       : 0.02 tok/s\n"
)
LITGPT_FINETUNE = (
    "{'checkpoint_dir': PosixPath('checkpoints/EleutherAI/pythia-14m'),\n 'devices': 2,\n 'num_nodes': 1,\n"
    f" 'precision': '32-true',\n 'train': TrainArgs(micro_batch_size=1)}}\n{LITGPT_LINE.format(1)}\n"
    "| Performance\n| - Training Time             :  8.00 s\n| - Tok/sec                   :  125.00 tok/s\n"
)
TRAINER_PRINTS = (
    "{'loss': 2.7, 'grad_norm': 0.66, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    "{'train_runtime': 358.4, 'train_samples_per_second': 11.43, 'train_steps_per_second': 0.7, 'epoch': 1.0}\n"
)
TRAINER_TWICE = TRAINER_PRINTS + "  train_samples_per_second =      11.43\n"
KERAS = "".join(
    f"Epoch {epoch}/2\n\x1b[1m 1/32\x1b[0m ━━━━ \x1b[1m1:02\x1b[0m 9s/step - loss: 2.3\n"
    f"\x1b[1m32/32\x1b[0m ━━━━ \x1b[1m3s\x1b[0m {ms}ms/step - loss: 2.1\n"
    f"32/32 ━━━━ 1s 999ms/step - loss: 2.0\n"
    for epoch, ms in ((1, 20), (2, 30))
)

MAXTEXT = "I0811 max_utils.py:100] Num devices: 8\n" + "".join(
    f"I0811 21:55 1 metric_logger.py:226] completed step: {i}, seconds: 1.5, TFLOP/s/device: {rate}, Tokens/s/device: "
    f"{rate}, total_weights: 9, loss: 8.500\n"
    for i, rate in enumerate((1.5, 99999.0, 99999.0, 99999.0, 99999.0, 100.0, 102.5, 105.0))
)
MAXTEXT_OLD = "".join(
    f"completed step: {i}, seconds: {s}, TFLOP/s: 36.771, loss: 2.173\n"
    for i, s in enumerate((9.0, 0.001, 0.001, 0.001, 0.001, 2.0, 2.0, 9.0))
)
NEMO = "All distributed processes registered. Starting with 8 processes\n" + "".join(
    f"Training epoch 0, iteration {i}/9 | lr: 7e-06 | global_batch_size: 128 | global_step: {i} | reduced_train_loss: "
    f"11.96 | train_step_timing in s: {s} | TFLOPS_per_GPU: 1.2e+03 | consumed_samples: 5888 | val_loss: 2.8\n"
    for i, s in enumerate((99.0, 2.0, 6.0))
)
NEMO_BAR = "precision=bf16-mixed\nglobal_batch_size: 8\n" + "".join(
    f"Epoch 0: : 10%|# | {i}/9 [00:20<00:10, v_num=x, reduced_train_loss=8.1, global_step={i}.0, consumed_samples=9.0, "
    f"train_step_timing in s={s}]\r"
    for i, s in enumerate((99.0, 2.0, 6.0))
)
LIGHTNING = "".join(
    f"Epoch 0: {i}%|#  | {i}/100 [00:02<00:00, {rate:.2f}it/s, v_num=0, train_loss=1.23]\r"
    for i, rate in ((0, 0.0), (5, 9999.0), (100, 12.5))
)
LIGHTNING_RICH = "Epoch 0/1  ━━━━ 100/100 0:00:05 • 0:00:00 12.50it/s v_num: 0 train_loss: 1.2\n"
NANOCHAT = (
    "Tokens / micro-batch / rank: 32 x 2048 = 65,536\nTokens / micro-batch: 524,288\n"
    "Total batch size 524,288 => gradient accumulation steps: 1\n"
) + "".join(
    f"step {i:05d}/21400 (0.05%) | loss: 8.123456 | lrm: 1.00 | dt: 1234.56ms | tok/sec: {rate:,} | bf16_mfu: 48.00\n"
    for i, rate in ((10, 999_999), (11, 300_000), (12, 600_000))
)
BUILD_NANOGPT = "".join(
    f"step {i:5d} | loss: 9.5 | lr 1.2e-05 | norm: 9.9 | dt: 340.23ms | tok/sec: {rate:.2f}\n"
    for i, rate in ((0, 9.0), (11, 1_540_000.5))
)
MODDED = "".join(
    f"step:{i}/1750 {loss} train_time:{i * 60}ms step_avg:{mean}ms\n"
    for i, loss, mean in (
        (0, "val_loss:10.8", "0.00"), (1, "train_loss:9.9", "nan"), (125, "val_loss:4.1", "999.00"),
        (126, "train_loss:4.0", "50.00"),
    )
)  # fmt: skip
LLM_C = (
    "| device                | NVIDIA H100 80GB HBM3                |\n| precision             | BF16      |\n"
    "| num_processes         | 8      |\nbatch_size B=64 * seq_len T=1 * num_processes=8 and total_batch_size=1000\n"
) + "".join(
    f"step {i:4d}/18865 | loss 7.1234 (+nanz)| norm 12.3 (+nanz)| lr 8e-06 | {ms:.2f} ms | 48.9% bf16 MFU | 9 tok/s\n"
    for i, ms in ((1, 99999.0), (2, 100.0), (3, 300.0))
)


def prefixed(prefix: str, text: str = MEGATRON) -> str:
    return "".join(f"{prefix}{line}" for line in text.splitlines(keepends=True))


def mllog(key: str, seconds: int = 0, value: object = None, samples: int | None = None) -> str:
    """Return a line of MLPerf's log, behind the prefix of a rank and a second time, as two ranks write it."""
    entry = {"time_ms": 1000 * seconds, "key": key, "value": value, "metadata": {"samples_count": samples}}
    return "".join(f"{rank}: :::MLLOG {json.dumps(entry)}\n" for rank in (0, 1))


MLPERF = (
    mllog("submission_benchmark", value="llama31_8b") + mllog("submission_platform", value="4xB200")
    + mllog("global_batch_size", value=32) + mllog("gradient_accumulation_steps", value=2)
    + mllog("micro_batch_size", value=2) + mllog("tensor_parallelism", value=2)
    + mllog("lowest_numerical_precision_linear", value="mxfp4")
    + mllog("block_start", 100, samples=0) + mllog("block_stop", 110, samples=1000)
    + mllog("eval_start", 110, samples=1000) + mllog("eval_stop", 990, samples=1000)
    + mllog("block_start", 1000, samples=1000) + mllog("block_stop", 1030, samples=2000)
    + mllog("block_stop", 9999, samples=3000) + mllog("run_stop", 9999, samples=3000)
)  # fmt: skip
NCCL_ROW = "  {:>12}  {:>12}     float     sum      -1    20.00    0.05    {}      0    20.00    0.05    9.99    N/A\n"
NCCL = (
    "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 8 minBytes 8 maxBytes 1024 step: 2(factor)\n"
    "#  Rank  0 Group  0 Pid  14926 on node0 device  0 [000f:01:00.0] NVIDIA H100 80GB HBM3\n"
    + NCCL_ROW.format(512, 128, 0.09) + NCCL_ROW.format(1024, 256, 699.35) + "# Avg bus bandwidth    : 95.3\n"
)  # fmt: skip
NCCL_END = NCCL[NCCL.index("     ") :] + "n:1:1 [0] NCCL INFO comm 0x7f rank 1 nranks 16 - Destroy COMPLETE\n"
NCCL_MPI = NCCL.replace("_perf", "_perf_mpi").replace("Rank  0", "Rank 15")
NCCL_MPI = NCCL_MPI.replace("      0    20.00    0.05    9.99", "")
NCCL_JSON = json.dumps({
    "identifier": "nccl-tests structured output", "version": "2.26.6",
    "benchmark": [{"512": {"oop_busbw": 1.5, "ip_busbw": 9.0}, "1024": {"oop_busbw": 19.5, "ip_busbw": 9.0}}],
})  # fmt: skip

BERT_16 = ("bert-base", "fp16")
LOGS: dict[str, tuple[str, str, float, tuple[Any, ...]]] = {
    # name of the file: its text, its kind, the value by its rule, and (model, precision, batch per device, devices)
    "a.log": (BERT_TORCH, "NGC PyTorch", 250.5, (*BERT_16, 32, 2)),
    "b.log": (RESNET_TORCH + SUMMARY, "NGC PyTorch", 415.0, ("resnet50", "fp16", 256, 1)),
    "c.log": (MPIRUN + RESNET_TORCH + SUMMARY, "NGC PyTorch", 300.0, ("resnet50", "fp16", 256, None)),
    "d.log": ((RESNET_TORCH + SUMMARY).replace("2023", "2021"), "NGC PyTorch", 300.0, ("resnet50", "fp16", 256, 1)),
    "e.log": (BERT_TENSORFLOW + AVERAGE, "NGC TensorFlow", 103.5, (*BERT_16, 64, 8)),
    "f.log": ((BERT_TENSORFLOW + AVERAGE).replace("2023", "2021"), "NGC TensorFlow", 77.125, (*BERT_16, 64, 8)),
    "g.log": (MPIRUN + BERT_TENSORFLOW, "NGC TensorFlow", 103.5, (*BERT_16, 64, 8)),
    "h.log": ((BERT_TENSORFLOW + AVERAGE).replace("seq/s", "sequences/s"), "NGC TensorFlow", 83.0, (*BERT_16, 64, 8)),
    "i.log": (RESNET_TENSORFLOW, "NGC TensorFlow", 270.0, ("resnet50", "fp32", 256, 8)),
    "j.log": (RESNET_TENSORFLOW.replace("2023", "2021"), "NGC TensorFlow", 42.5, ("resnet50", "fp32", 256, 8)),
    "k.log": (RESNET_MXNET, "NGC MXNet", 400.0, ("resnet50", "fp16", 256, 2)),
    "l_gpu8.log": (PADDLE, "PaddlePaddle", 8 * 115.0, ("bert-base", "fp32", 32, 8)),
    "m.log": (PADDLE_PRESENT, "PaddlePaddle", 20.5, ("bert-base", "fp16", 96, 1)),
    "n.log": (GLUON, "GluonNLP", 12_000.0, (*BERT_16, 16, 2)),
    "1n2g/bert_b32_fp32_1.log": (DLPERF, "GluonNLP", 480.0, (None, "fp32", 32, 2)),
    "o.log": (ONEFLOW, "OneFlow", 128 * 16 * 100 / 50, ("resnet50", "fp16", 128, 16)),
    "p.log": (ONEFLOW_GPT, "OneFlow", 31.0, ("gpt-768x12", "fp16", 4, 8)),
    "q.log": (MEGATRON, "Megatron-LM", 128.0, ("gpt-1024x24", "fp16", 4, 8)),
    "r.log": (DEEPSPEED, "DeepSpeed", 100.5, (None, "fp16", 4, 8)),
    "trainer_state.json": (TRAINER, "Hugging Face Trainer", 11.43, (None, None, 8, None)),
    "s.log": (NANOGPT, "nanoGPT", 1000 / 0.6, ("nanoGPT, 123.59M parameters", None, None, None)),
    "t.log": (NANOGPT_BENCH, "nanoGPT", 4.0, (None, None, None, None)),
    "u.log": (TORCHTITAN, "torchtitan", 8 * 5762.0, ("llama3 8B", None, None, 8)),
    "v.log": (LITGPT, "LitGPT", 2048.0, ("pythia-14m", "bf16", 4, 2)),
    "w.log": (LITGPT_FINETUNE, "LitGPT", 250.0, ("EleutherAI/pythia-14m", "fp32", 1, 2)),
    "x.log": (TRAINER_PRINTS, "Hugging Face Trainer", 11.43, (None, None, None, None)),
    "y.log": (KERAS, "Keras", 40.0, (None, None, None, None)),
    "za.log": (MAXTEXT, "MaxText", 8 * 102.5, (None, None, None, 8)),
    "zb.log": (MAXTEXT_OLD, "MaxText", 0.5, (None, None, None, None)),
    "zc.log": (NEMO, "NeMo", 32.0, (None, None, None, 8)),
    "zd.log": (NEMO_BAR, "NeMo", 2.0, (None, "bf16", None, None)),
    "ze.log": (LIGHTNING, "Lightning", 12.5, (None, None, None, None)),
    "zf.log": (LIGHTNING_RICH, "Lightning", 12.5, (None, None, None, None)),
    "zg.log": (NANOCHAT, "nanochat", 400_000.0, (None, None, 32, 8)),
    "zh.log": (BUILD_NANOGPT, "nanochat", 1_540_000.5, (None, None, None, None)),
    "zi.log": (MODDED, "modded-nanogpt", 20.0, (None, None, None, None)),
    "e4b5a644-b816-4c86-8311-fa6352289e71.txt": (MODDED, "modded-nanogpt", 20.0, (None, None, None, None)),
    "zj.log": (LLM_C, "llm.c", 5000.0, (None, "bf16", 64, 8)),
    "zk.log": (MLPERF, "MLPerf (MLLOG)", 2000 / 40, ("llama31_8b", "fp4", 2, 16)),
    "zl.log": (NCCL, "nccl-tests", 699.35, ("all_reduce", None, None, 8)),
    "zm.log": (prefixed("[1,0]<stdout>:", NCCL), "nccl-tests", 699.35, ("all_reduce", None, None, 8)),
    "zm2.log": (NCCL_END, "nccl-tests", 699.35, (None, None, None, 16)),
    "zm3.log": (NCCL_MPI, "nccl-tests", 699.35, ("all_reduce", None, None, 16)),
    "all_reduce_8.txt": (NCCL[NCCL.index("# nThread") :], "nccl-tests", 699.35, ("all-reduce", None, None, 8)),
    "zn.json": (NCCL_JSON, "nccl-tests", 19.5, (None, None, None, None)),
    "zo.log": (TRAINER_TWICE, "Hugging Face Trainer", 11.43, (None, None, None, None)),
}


TITAN_90 = "step: 90  loss:  8.0  memory: 30.00GiB(38.00%)  tps: 5,762"
TITAN_LATE = re.sub(r"(?m)^\[rank\d\]:", "", TORCHTITAN)
TITAN_SHORT = "".join(
    f"[titan] step: {i}  loss: 8.0  memory: 30.00GiB(38.00%)  tps: {tps}\n"
    for i, tps in ((1, 1), (50, 300), (100, 600))
)
TITAN_MESH = (
    "[titan] CUDA capacity: NVIDIA H200 with 139.81GiB memory\n[titan] MXFP8 grouped GEMM training active\n[titan] "
    "Building device mesh with parallelism: pp=1, dp_replicate=2, dp_shard=8, cp=1, tp=4, ep=8, etp=1\n"
)
GROWING = MEGATRON.rpartition(" iteration")[0] + MEGATRON[MEGATRON.index(" iteration      300") :].replace(
    "600.0", "1200.0"
).replace("batch size:    64", "batch size:   256")


VARIANTS: dict[str, tuple[str, float, tuple[Any, ...]]] = {
    # What the same programs print otherwise: the text, the value, and (model, precision, batch per device, devices)
    "validation beside training": (
        TORCHTITAN + f"[titan] validate {TITAN_90.replace('5,762', '9')}\n", 8 * 5762.0, ("llama3 8B", None, None, 8)
    ),
    "ranks without prefixes, one of them late": (
        TITAN_LATE + TITAN_LATE.splitlines()[-2].replace("100", " 90") + "\n", 8 * 5762.0, ("llama3 8B", None, None, 8)
    ),
    "other lines than that of step 90, a new mesh": (TITAN_MESH + TITAN_SHORT, 64 * 400.0, (None, "fp8", None, 64)),
    "a global batch that grows": (GROWING, (64 + 256) / (0.4 + 1.2), ("gpt-1024x24", "fp16", 4, 8)),
    "fp8 among the arguments": ("  fp8 ............. hybrid\n" + MEGATRON, 128.0, ("gpt-1024x24", "fp8", 4, 8)),
    "no fp8 among the arguments": ("  fp8 ............. None\n" + MEGATRON, 128.0, ("gpt-1024x24", "fp16", 4, 8)),
    "lines without a blank": (MEGATRON.replace("\n iteration", "\niteration"), 128.0, ("gpt-1024x24", "fp16", 4, 8)),
    **{
        f"lines of {launcher}": (prefixed(prefix), 128.0, ("gpt-1024x24", "fp16", 4, 8))
        for launcher, prefix in {
            "srun": "7: ", "mpirun": "[prte-1@1,7]<stdout>:", "torchrun": "[default0]:", "MPICH": "[3] ",
            "PBS": "x3001c0s1b0n0.hsn.example 3: ", "srun and torchrun": " 3: [rank0]:",
        }.items()
    },
    "a state that was resumed": (
        TRAINER.replace("]}", ', {"step": 512, "train_runtime": 100.0, "train_samples_per_second": 80.0}]}'),
        40.0, (None, None, 8, None),
    ),
    "DLLogger's JSON": (
        "".join(
            f"DLLL {json.dumps({'datetime': '2023-06-01 10:00:00.12', 'type': 'LOG', 'step': step, 'data': data})}\n"
            for step, data in (
                ("PARAMETER", {"Config": ["Namespace(config_file='bert_config_base.json', fp16=True)"]}),
                ("PARAMETER", {"batch_size_per_gpu": 32}),
                ([0, 7], {"average_loss": 7.9, "step_loss": 8.0}),
                ([], {"training_sequences_per_second": 250.5, "final_loss": 10.0}),
            )
        ),
        250.5, ("bert-base", "fp16", 32, None),
    ),
    "a console that was resumed": (
        "  Total optimization steps = 1,000\n  Continuing training from global step 750\n" + TRAINER_PRINTS,
        11.43 / 4, (None, None, None, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_other_forms_of_a_log_have_the_right_figure(name: str, tmp_path: Path) -> None:
    text, value, facts = VARIANTS[name]
    run = run_of(tmp_path / "log", text=text)
    assert (run.status, facts_of(run)) == ("ok", facts), run.reason
    assert run.value == pytest.approx(value)


def test_a_file_with_two_runs_of_mlperf_has_two_results(tmp_path: Path) -> None:
    slower = MLPERF.replace('"time_ms": 1030000', '"time_ms": 1130000')
    (tmp_path / "log").write_text(MLPERF + slower)
    assert [run.value for run in of_file(tmp_path / "log", "log")] == [2000 / 40, 2000 / 140]


def run_of(path: Path, name: str | None = None, text: str | None = None) -> records.ImportedRun:
    """Return the only run of a file, with this text if it is not there."""
    if text is not None:
        path.write_text(text, encoding="utf-8")
    (run,) = of_file(path, name or path.name)
    return run


def facts_of(run: records.ImportedRun) -> tuple[Any, ...]:
    return run.model, run.precision, run.batch_size_per_device, run.devices


@pytest.mark.parametrize("name", LOGS)
def test_a_kind_is_known_by_its_content_and_has_its_rule(name: str, tmp_path: Path) -> None:
    text, kind, value, facts = LOGS[name]
    run = run_of(tmp_path / "log", name, text)
    assert (run.status, run.kind, facts_of(run)) == ("ok", kind, facts), run.reason
    assert run.value == pytest.approx(value)
    assert set(run.reasons) == {key for key in FACTS if getattr(run, key) is None}
    assert run.rule and len(run.rule.split()) > 3


def test_the_page_about_a_new_kind_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's code is a kind as soon as its file is where kinds are, and reads the page's log by its rule."""
    page = (Path(__file__).parents[3] / "docs" / "contributing" / "add-a-kind-of-log.md").read_text(encoding="utf-8")
    (log,) = re.findall(r"```text\n(.*?)```", page, re.S)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    (tmp_path / "toytrain.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(log_kinds, "__path__", [*log_kinds.__path__, str(tmp_path)])
    read, cut, other = (run_of(tmp_path / "a", text=text) for text in (log, log.partition("\n[toy")[0], MEGATRON))
    assert (read.kind, read.framework, *facts_of(read)) == ("Toytrain", "Toytrain", "resnet50", "bf16", 16, 8)
    assert read.value == pytest.approx(8 * 16 / 0.4)
    assert (cut.status, other.kind) == ("foreign", "Megatron-LM")
    assert re.search(log_kinds.timed()["toytrain"].step, log)


TIMED = {
    "nanogpt": (NANOGPT, {"step": "0", "loss": "10.0", "ms": "9999.00"}),
    "torchtitan": (TORCHTITAN, {"step": "10", "loss": "8.0", "per_s": "1"}),
    "megatron-lm": (MEGATRON, {"step": "100", "loss": "9.0E+00", "ms": "99999.0", "samples": "64"}),
    "deepspeed": (DEEPSPEED, {"step": "10", "per_s": "1.0"}),
    "maxtext": (MAXTEXT, {"step": "0", "loss": "8.500", "per_s": "1.5"}),
    "nemo": (NEMO, {"step": "0", "loss": "11.96", "s": "99.0", "samples": "128"}),
    "nanochat": (NANOCHAT, {"step": "00010", "loss": "8.123456", "per_s": "999,999"}),
    "llm-c": (LLM_C, {"step": "1", "loss": "7.1234", "ms": "99999.00"}),
    "litgpt": (LITGPT, {"step": "1", "loss": "10.958", "ms": "100.00"}),
    "ngc-pytorch": (BERT_TORCH, {"step": "7", "loss": "8.0078125", "clock": "10:00:00.123456"}),
    "gluonnlp": (DLPERF, {"step": "0", "loss": "9.24962", "ms": "1"}),
}


def test_lines_of_timed_kinds_have_a_step_and_its_time() -> None:
    for name, kind in log_kinds.timed().items():
        text, groups = TIMED[name]
        match = next(filter(None, (re.search(kind.step, line) for line in plain(text).splitlines())))
        assert match.groupdict() == groups


def test_every_kind_is_tested_and_documented() -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs" / "how-to" / "import-logs.md").read_text(encoding="utf-8")
    tested = {kind for _, kind, *_ in LOGS.values()} | {"DLPerf's result", "Paddle's index"}
    assert {kind.title for kind in log_kinds.find_all()} == tested
    for name in tested:
        assert name.replace("Face ", "Face's ") in page
    programs = (root / "docs" / "how-to" / "measure-your-own-program.md").read_text(encoding="utf-8")
    assert [name for name in log_kinds.timed() if f"`{name}`" not in programs] == []


BAD: dict[str, tuple[bytes | str, str]] = {
    # name of the file: its content, and its status with the start of its reason
    "ngc_bert": (
        BERT_TORCH.partition(" e2e")[0] + dll("Training Epoch: 0 Training Iteration: 7"),
        "cut_off NGC PyTorch",
    ),
    "ngc_resnet": (RESNET_TORCH, "cut_off NGC PyTorch"),
    "tensorflow_bert": (BERT_TENSORFLOW, "cut_off NGC TensorFlow"),
    "tensorflow_resnet": (RESNET_TENSORFLOW.partition(dll("()")[-6:-1])[0], "cut_off NGC TensorFlow"),
    "mxnet": (RESNET_MXNET.partition("Summary")[0], "cut_off NGC MXNet"),
    "paddle": (PADDLE[:500], "cut_off PaddlePaddle"),
    "gluon": (GLUON[:700], "cut_off GluonNLP"),
    "oneflow": (ONEFLOW.rpartition("train:")[0], "cut_off OneFlow"),
    "megatron-lm": (MEGATRON.partition("     200/")[0], "cut_off Megatron-LM"),
    "trainer": (TRAINER_PRINTS.partition("{'train")[0], "cut_off Hugging Face Trainer"),
    "trainer_state": (TRAINER.replace("train_samples_per_second", "loss"), "cut_off Hugging Face Trainer"),
    "half_a_state": (TRAINER[:-40], "cut_off Hugging Face Trainer"),
    "litgpt": (LITGPT.partition("| Perf")[0], "cut_off LitGPT"),
    "nanogpt": (NANOGPT.partition("iter 3")[0], "cut_off nanoGPT"),
    "maxtext": (MAXTEXT.partition("step: 5")[0], "cut_off MaxText"),
    "mllog": (MLPERF.partition("block_stop")[0], "cut_off MLPerf (MLLOG): it has no block"),
    "torchtitan": (TORCHTITAN.partition("step: 90")[0], "cut_off torchtitan"),
    "index": ('{"FINAL_RESULT": 0, "model_name": "x", "gpu_num": 1, "JOB_FAIL_FLAG": 1}', "cut_off Paddle's index"),
    "index_of_words": ('{"FINAL_RESULT": "many", "model_name": "x", "gpu_num": 1}', "broken Paddle's index"),
    "cells": ('{"bert": {"1n1g": {"median_speed": 1.0, "batch_size_per_device": "x"}}}', "broken DLPerf's result"),
    "no_cells": ('{"bert": {"1n1g": {"median_speed": 1.0}}, "rn50": 3}', "broken DLPerf's result"),
    "zero": (BERT_TORCH.replace("250.5", "0.0"), "broken NGC PyTorch: a figure in it is no positive number"),
    "no_batch": (ONEFLOW.replace("batch_size_per_device", "something"), "broken OneFlow: it prints times alone"),
    "no_devices": ("PADDLE_TRAINER\n" + PADDLE, "broken PaddlePaddle: its figures are of one device"),
    "backwards": (ONEFLOW.replace(str(CLOCK + 50), str(CLOCK - 50)), "broken OneFlow: the times of day"),
    "two_kinds": (BERT_TORCH + MEGATRON, "mixed it holds lines of"),
    "runs": (PADDLE + PADDLE, "mixed PaddlePaddle: its steps begin again"),
    "ranks_twice": (TITAN_LATE * 2, "mixed torchtitan: its steps begin again"),
    "no_steps_since": (TRAINER + TRAINER, "mixed Hugging Face Trainer: it was resumed at step 256"),
    "ends": (BERT_TORCH + BERT_TORCH.replace("250.5", "260.5"), "mixed NGC PyTorch: it ends 2 runs"),
    "half.gz": (gzip.compress(MEGATRON.encode())[:-99], "broken it cannot be read: its packed data is damaged"),
    "binary": (os.urandom(4096), "binary it is no text"),
    "empty": ("", "foreign it is empty"),
    "foreign": ("Epoch 1, 12 s, all is well\n", "foreign no line of it"),
    "json": ('{"anything": [1, 2]}', "foreign no line of it"),
}


def test_bad_files_say_why_and_the_others_are_read(tmp_path: Path) -> None:
    good = {
        "damaged.log": BERT_TORCH.encode() + b"\xff\xfe\x00 ranks wrote at once\n",
        "packed.log.gz": gzip.compress(b"\xef\xbb\xbf" + NANOGPT.encode()),
        "two.log": (RESNET_MXNET + RESNET_MXNET.replace("[0, 1]", "[0]")).encode(),
    }
    for name, content in {**{name: text for name, (text, _) in BAD.items()}, **good}.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with open(tmp_path / "huge", "wb") as huge:
        huge.truncate(LARGEST + 1)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / ".hidden").write_text(BERT_TORCH)
    read = records.Imported.model_validate(imported("others", tmp_path))
    bad = {run.file: f"{run.status} {run.reason}" for run in read.files if run.status != "ok"}
    expected = {name: words for name, (_, words) in BAD.items()} | {"huge": "too_large it has more than the 64 MiB"}
    assert {name: why[: len(expected[name])] for name, why in bad.items()} == expected
    assert [run.file for run in read.read] == ["damaged.log", "packed.log.gz", "two.log", "two.log"]
    assert [row.origin for row in read.results().values()] == ["imported"] * 4
    assert "others: 36 of 39 files were not read: 3 foreign (its kind is not known), " in read.outcome


def test_one_file_is_an_import(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(MEGATRON)
    read = records.Imported.model_validate(imported("others", tmp_path / "a.log"))
    assert [run.file for run in read.read] == ["a.log"] and read.outcome == "others: all 1 files were read"


def test_no_folder_and_an_empty_one_are_errors(tmp_path: Path) -> None:
    for folder, words in ((tmp_path / "none", "does not exist"), (tmp_path, "holds no file")):
        with pytest.raises(UserError, match=rf"imports\.x\.logs: .*{words}"):
            imported("x", folder)


def test_no_address_and_no_host_reaches_an_output(tmp_path: Path) -> None:
    logs, drawn = tmp_path / "logs", tmp_path / "drawn"
    logs.mkdir()
    names = "not ready endpoints:['10.11.0.2:56519', 'gpu-node-17.cluster.example:40607']\n"
    for devices in (1, 2):
        (logs / f"10.11.0.3_gpu{devices}.log").write_text(names + PADDLE + "ssh bob@192.168.7.9\n")
    (logs / "b.log").write_text(MPIRUN + "gpu-node-17: NCCL INFO 10.11.0.5\n" + BERT_TORCH)
    (logs / "c.log").write_text("gpu-node-17 10.11.0.6\n")
    records.write(records.Imported, content := imported("others", logs), tmp_path / "imported.json")
    imports.write(records.Imported.model_validate(content), drawn)
    texts = [path for path in drawn.iterdir() if path.suffix != ".png"]
    assert {path.suffix for path in texts} == {".csv", ".md", ".svg"}
    for text in (path.read_text() for path in (tmp_path / "imported.json", *texts)):
        for secret in ("10.11.0", "192.168", "gpu-node", "cluster.example", "bob"):
            assert secret not in text


def test_tables_and_plots_mark_what_is_imported(tmp_path: Path) -> None:
    for devices in (1, 8):
        (tmp_path / f"run_gpu{devices}.log").write_text(PADDLE)
    (tmp_path / "other.log").write_text("nothing\n")
    read = records.Imported.model_validate(imported("others", tmp_path))
    header, rows = table_files.printed(imports.table(imports.rows(read)))
    by_file = {row[header.index("file")]: row for row in rows}
    assert by_file["run_gpu8.log"][header.index("speedup")] == "8.00"
    assert "imported" in by_file["run_gpu8.log"]
    assert "foreign" in by_file["other.log"]
    imports.write(read, tmp_path / "drawn")
    table = {row["file"]: row for row in report_fixture.read_csv(tmp_path / "drawn" / "throughput.csv")}
    assert {row["origin"] for row in table.values()} == {"imported"}
    assert (table["run_gpu8.log"]["devices"], table["run_gpu8.log"]["from_its_name"]) == ("8", "")
    assert "results that should differ: the same proof as for 1 devices" in table["run_gpu8.log"]["implausible"]
    assert (tmp_path / "drawn" / "throughput_0.png").stat().st_size > 1000
    alone = [run.model_copy(update={"gradient_accumulation": 1}) for run in read.read]
    apart = imports.drawings(read.model_copy(update={"files": [*read.files, *alone]}))
    assert ["no accumulation" in drawing.title for drawing in apart] == [False, True]
    (drawing,) = imports.drawings(read)
    assert "imported" in drawing.title
    assert "imported" in imports.section(read)["topic"].title


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the published logs are not at {SHARED}")
def test_every_published_log_gives_its_number_to_the_last_printed_digit() -> None:
    rows = [row for row in report_fixture.read_csv(SHARED / "index.csv") if row["published"]]
    assert len(rows) == 60
    for row in rows:
        run = run_of(SHARED / row["file"], row["file"])
        half = 0.5 * 10.0 ** -len(row["published"].partition(".")[2])
        assert run.value and abs(run.value - float(row["published"])) <= half * 1.000001, row["file"]
        expected = row["model"], row["precision"].replace("amp", "fp16"), row["batch_size_per_device"], row["gpus"]
        assert (*map(str, facts_of(run)), run.unit) == (*expected, row["unit"]), row["file"]


def test_results_are_written_in_both_forms_and_read_among_logs(tmp_path: Path) -> None:
    records_of = {"bz32_fp32": report_fixture.write_study(tmp_path)["bz32_fp32"]}
    (place,) = report_fixture.write_summaries(tmp_path, records_of)
    exports.write([records.read_summary(place)], study := tmp_path / "bert" / "tables")
    cells = json.loads((study / "dlperf" / "mxnet-horovod_bz32_fp32_result.json").read_text())["bert"]
    columns = ("average_speed", "median_speed", "speedup", "batch_size_per_device")
    assert {name: tuple(cell[column] for column in columns) for name, cell in cells.items()} == {
        "1n1g": (150.1, 150.11, 1.0, 32),
        "1n2g": (270.37, 270.28, 1.8, 32),
        "1n4g": (540.52, 538.5, 3.59, 32),
        "1n8g": (1058.05, 1058.6, 7.05, 32),
        "2n8g": (1845.24, 1845.65, 12.3, 32),
        "4n8g": (3675.7, 3671.45, 24.46, 32),
    }
    index = {path.name: path.read_text() for path in (study / "index" / "mxnet-horovod").iterdir()}
    assert min(index) == "nlp_bert_mp_bs32_fp32_16_speed"
    text = index["nlp_bert_sp_bs32_fp32_1_speed"]
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "log_file": "nlp_bert_sp_bs32_fp32_1_speed", "model_name": "bert_bs32_fp32", "mission_name": "bert-base",
        "direction_id": 1, "run_mode": "sp", "index": 1, "gpu_num": 1, "FINAL_RESULT": 150.11, "JOB_FAIL_FLAG": 0,
        "UNIT": "samples/s",
    }  # fmt: skip
    links = re.findall(r"\]\(([^)]+)\)", (study / "logs.md").read_text())
    assert len(links) > 70 and all((study / link).is_file() for link in links)
    # Both forms are read among logs.
    path = study / "dlperf" / "torch_bz32_fp32_result.json"
    eight = {run.devices: run for run in of_file(path, path.name)}[8]
    assert (eight.framework, eight.nodes, *facts_of(eight)) == ("torch", 1, "bert", "fp32", 32, 8)
    run = run_of(study / "index" / "torch" / "nlp_bert_mp_bs32_fp32_8_speed")
    assert (run.status, run.kind, *facts_of(run)) == ("ok", "Paddle's index", "bert", "fp32", 32, 8)
    assert run.value == pytest.approx(eight.value, abs=0.01)
