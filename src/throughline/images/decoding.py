"""A process that decodes pictures for a rank: it reads rows and writes pixels into memory that it shares with the rank.

    python -m throughline.images.decoding     (reading.py starts it, in the workflow's own environment)

Input: a line of JSON, then for each batch HEADER and the rows. Output: a line with Pillow's version, then for each
batch a line that is empty or says what went wrong. The process ends when its input or its parent process ends.
"""

from __future__ import annotations

import json
import mmap
import signal
import sys

import numpy as np
import PIL

from throughline.images.row_decoder import Decoder
from throughline.images.shared_batches import HEADER, views
from throughline.processes import die_with_parent


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when to end
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    job = json.loads(stdin.readline())
    die_with_parent(job["parent"], signal.SIGKILL)
    decoder, memory = Decoder(job), mmap.mmap(job["memory"], 0)
    answer = PIL.__version__
    while True:
        stdout.write(answer.encode() + b"\n")
        stdout.flush()
        header = stdin.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        slot, count, first, step = HEADER.unpack(header)
        rows = np.frombuffer(stdin.read(count * 24), np.int64).reshape(-1, 3)
        pixels, labels = views(memory, slot, job["size"], job["image"])
        answer = ""
        for place, (shard, row, epoch) in zip(range(first, first + count * step, step), rows.tolist(), strict=True):
            try:
                pixels[place], labels[place] = decoder.sample(shard, row, epoch)
            except Exception as error:  # the rank gets the message and ends with it
                answer = f"picture {row} of {job['shards'][shard]['file']}: {type(error).__name__}: {error}"
                answer = " ".join(answer.split())


if __name__ == "__main__":
    main()
