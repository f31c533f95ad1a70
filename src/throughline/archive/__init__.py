"""Archives: the results of one configuration in one file, which a stranger can check.

`pack` makes results/archive.zip. `check` opens such a file and derives its figures again from the raw values in it. An
archive comes from somebody else, so `contents` takes nothing in it for granted.
"""
