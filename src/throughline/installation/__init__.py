"""Installation: build the environments of the frameworks, and say what a machine lacks.

build.py follows the recipe of an environment (recipes.py) with uv.py, which runs uv with pip's settings. conda_files.py
writes the same environments for conda. doctor.py is `make doctor`. Everything here imports the standard library only.
"""
