"""Run a module or a file with the library of this clone, in any Python: `python src/start.py MODULE ARGUMENTS`.

Python puts the folder of this file at the start of its path. So the library does not have to be installed: the
environments of frameworks belong to all clones of a user, and Snakemake's conda environments and containers have no
clone of their own.
"""

import sys

del sys.argv[0]
if sys.argv[0].endswith(".py"):
    __file__ = sys.argv[0]
    with open(__file__, "rb") as code:
        exec(compile(code.read(), __file__, "exec"))
else:
    import runpy

    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
