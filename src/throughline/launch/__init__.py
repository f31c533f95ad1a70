"""Launch: from a specification to processes and back to a record.

launch.py has the steps of one run: survey the nodes (job.py), check the data, order, supervise, assemble, write. One
agent per node starts the ranks of that node and ends them; what they say to each other is in messages.py. Locks, the
watchdog and the progress line are here, and so are the building of a framework's environment and `make doctor`.

This room knows rank/, observe/ and all below them, and no check or report. agent.py, launchers.py and machine.py run in
a framework's environment: they import the standard library and what a rank has.
"""
