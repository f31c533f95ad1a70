"""Decode pictures with NVIDIA's DALI in the rank's own process, on its GPU or on a CPU (`options.image_decoder: dali`).

Rows, crops and mirroring are the same as with Pillow (decoding.py). Only decoding and resizing are DALI's, so the
pixels differ by rounding. On a GPU the pixels stay there for a framework that can take them (`Rank.takes_from_gpu`).
For the others they pass through the host's memory.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia import dali
from nvidia.dali import fn, types

from throughline.images.decoding import Decoder

VERSION = dali.__version__
Arrays = dict[str, NDArray[Any]]


def decoded(
    job: Mapping[str, Any], rows: Iterator[Arrays], size: int, threads: int, gpu: int | None, ahead: int, stays: bool
) -> Iterator[dict[str, Any]]:
    """Yield `pixels` u1[B, S, S, 3] and `labels` i4[B] of batches of at most `size` rows.

    `job`: what a Decoder needs. `gpu`: the number of the GPU, None for the CPU. `stays`: the pixels are a tensor of
    DALI's where it has decoded them, which other libraries read by DLPack, and not a numpy array. They are complete.
    """
    decoder, labels = Decoder(job), deque[NDArray[Any]]()

    def source() -> tuple[list[Any], ...]:
        """Return the next batch. For each picture: its file, the crop's (left, top), (width, height), and mirrored."""
        samples = (decoder.find(*row) for row in next(rows)["rows"].tolist())
        files, _, boxes, mirrored, classes = zip(*samples, strict=True)
        labels.append(np.array(classes, np.int32))
        corners = [np.array(box[:2], np.int32) for box in boxes]
        sides = [np.array(box[2:], np.int32) for box in boxes]
        return [np.frombuffer(file, np.uint8) for file in files], corners, sides, [np.int32(flip) for flip in mirrored]

    with dali.Pipeline(size, threads, gpu, prefetch_queue_depth=ahead) as pipeline:
        files, corners, sides, mirrored = fn.external_source(
            source, num_outputs=4, dtype=[types.UINT8, types.INT32, types.INT32, types.INT32]
        )
        pictures = fn.decoders.image_slice(
            files, start=corners, shape=sides, axis_names="WH", output_type=types.RGB, adjust_orientation=False,
            device="cpu" if gpu is None else "mixed",
        )  # fmt: skip
        side = decoder.image
        small = fn.resize(pictures, size=[side, side], interp_type=types.INTERP_LINEAR, antialias=True)
        pipeline.set_outputs(fn.flip(small, horizontal=mirrored))
    pipeline.build()
    while True:
        try:
            (batch,) = pipeline.run()  # it waits for the batch, in the loader's thread
        except StopIteration:
            return
        pixels = batch.as_tensor() if stays else np.array((batch if gpu is None else batch.as_cpu()).as_array())
        yield {"pixels": pixels, "labels": labels.popleft()}
