"""Import other people's logs: read every file of a folder, and write the results to results/NAME/imported.json.

We recognize a kind of log by its content. Each kind is one function in kinds/ with the rule of its source: which steps
the source itself drops, and what it averages. No rule uses a published figure. If a file cannot be read, its outcome
says why, and the other files are still read.
"""
