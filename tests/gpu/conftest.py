"""These tests need PyTorch's CUDA build and a compiler: `make test-gpu-dry` runs them. Without it none is collected."""

import os

collect_ignore_glob = [] if "GPU_DRY_PYTHON" in os.environ else ["test_*.py"]
