"""What all data packages share: files that are whole or absent, their faults, verification, manifests and targets.

A data package makes shards, verifies each of them, and writes a manifest of all when every shard has passed. Training
reads the shards that a manifest lists. hdf5.py and faults.py belong to the reading half too, which runs in a
framework's environment.
"""
