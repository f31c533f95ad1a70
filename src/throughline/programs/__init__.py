"""Training programs of somebody else: the words of their commands, and the times in their logs and marks.

The specification of a program is in spec/program.py, its section of the configuration in study/program_section.py, and
the process that starts it and reads its output is launch/program_runner.py. Standard library only.
"""
