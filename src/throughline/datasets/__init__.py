"""What all data packages share: names of shards, whole files, the errors for damaged ones, manifests, and targets.

A data package makes shards, verifies each of them, and writes a manifest of all when every shard has passed. Training
reads the shards that a manifest lists. shards.py and hdf5.py belong to the reading half too, which runs in a
framework's environment.
"""
