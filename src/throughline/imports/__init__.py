"""Other people's logs become results: every file of a folder -> results/NAME/imported.json.

A kind of log is recognized by its content, and has one short file in kinds/ that states its rule: which steps the
source itself drops, and what it averages. No rule knows a published figure. A file that cannot be read keeps no other
file from being read; its outcome says why.
"""
