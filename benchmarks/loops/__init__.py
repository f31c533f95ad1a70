"""Loops as users of a library write them by hand. plain_loops.py compares our steps with them.

Each file has ROWS (what is measured by default), SETTINGS (what differs from a configuration's defaults), OURS (each
kind of our step -> its parameters) and `contestant`. It returns a step, which takes a number and returns the loss of
the batch of that number, and the weights that our network gets as well. Without weights, each has its own.
"""
