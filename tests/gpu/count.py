"""Print what one optimizer step launches on a GPU: `python tests/gpu/count.py MODEL PRECISION [key=value ...]`.

    python tests/gpu/count.py bert-tiny bf16 clip=norm
    python tests/gpu/count.py gpt2-small bf16 batch=32 sequence_length=1024 compile=true
    python tests/gpu/count.py bert-tiny bf16 ranks=8 sharding=full_shard optimizer=lamb --names

`--names` adds every kernel and call with its number. It runs PyTorch's CUDA build on a fake CUDA driver that computes
nothing (README.md), so it needs no card and says nothing about time.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "src"), str(HERE)]

import cases  # noqa: E402
import lane  # noqa: E402
import table  # noqa: E402


def main() -> int:
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if len(words) < 2:
        print(__doc__)
        return 2
    case = cases.parse(" ".join(words))
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results")
        command = [str(lane.python()), str(HERE / "counting.py"), str(results)]
        subprocess.run(command, input=json.dumps(case), text=True, env=lane.variables(), check=True)
        told = json.loads(results.read_text())
    if "error" in told:
        print(told.get("trace", told["error"]))
        return 1
    for name, value in table.row(told).items():
        print(f"{name:18} {value}")
    if "--names" in sys.argv and "steps" in told:
        lines = [
            f"{count:6} {kind:8} {name}" + (f"  {size:,} bytes" if size else "")
            for kind, name, count, size in told["steps"][-1]
        ]
        print(readable("\n".join(lines)))
    return 0


def readable(text: str) -> str:
    """Return the text with names of C++ as they are written in a source, if this machine has c++filt (binutils)."""
    program = shutil.which("c++filt")
    return subprocess.run([program], input=text, text=True, capture_output=True).stdout if program else text


if __name__ == "__main__":
    sys.exit(main())
