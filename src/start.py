"""Run a module or a script with the library of this clone, in any Python: `python src/start.py MODULE ARGUMENTS`.

Python puts the folder of this file at the start of its path. So the library does not have to be installed: the
environments of frameworks belong to all clones of a user, and Snakemake's conda environments and containers have no
clone of their own. A script is a file with a function `main`, as in workflow/scripts.
"""

import sys

del sys.argv[0]
if sys.argv[0].endswith(".py"):
    from throughline import command

    command.run(command.loaded(sys.argv[0]))
else:
    import runpy

    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
