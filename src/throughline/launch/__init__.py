"""Launch: take a specification, start the processes of a run, and write its record.

launcher.py has the steps of one run: survey the nodes (site.py), check the data, write the order, supervise the ranks,
assemble the record, and write it. One agent per node starts and ends the ranks of that node. messages.py has the
messages between launcher and agents. This package also has the locks, the watchdog and the progress line.

This package may import rank/, observe/ and all packages below them, but no check and no report. agent.py,
agent_commands.py, agent_sampler.py and machine.py run in a framework's environment: they import only the standard
library and what a rank has.
"""
