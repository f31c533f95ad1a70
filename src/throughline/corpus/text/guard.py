"""Run a program that dies with its caller: `python guard.py LIFELINE PROGRAM ARGUMENTS...`

LIFELINE is the reading end of a pipe. Only the caller holds the other end, which closes when the caller ends for any
reason. Then the guard kills its own process group: itself, the program and every process that the program forked. The
guard's exit status is the program's.
"""

import os
import signal
import subprocess
import sys
import threading


def _kill_group_when_closed(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Start the program, watch the lifeline and return the program's exit status."""
    if os.getpgrp() != os.getpid():
        print("guard.py has to be started in a session of its own", file=sys.stderr)
        return 2
    lifeline = int(sys.argv[1])
    os.set_inheritable(lifeline, False)
    threading.Thread(target=_kill_group_when_closed, args=(lifeline,), daemon=True).start()
    status = subprocess.call(sys.argv[2:])
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
