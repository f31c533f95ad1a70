"""Pictures: a folder, tar files or the sample -> shards of JPEG files, verified, with a manifest.

A shard is a tar file in webdataset's layout, with an index that DALI can read too. Training reads the shards through
reading.py, shared_batches.py and shard_index.py, which need only numpy. Processes of the workflow's own environment,
which has Pillow, decode the pictures (decoding.py).
"""
