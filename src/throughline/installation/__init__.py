"""Installation: the environments in which the ranks of frameworks run.

recipe.py reads what an environment consists of (envs/*.toml), choose.py decides which build this machine gets and why,
and build.py builds it with uv (uv.py: with pip's settings; torch_build.py: which PyTorch; horovod.py: MPI, CUDA and
NCCL for Horovod). conda_files.py writes the same environments for conda. Everything here imports the standard library
only.
"""
