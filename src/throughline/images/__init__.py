"""Pictures and aligned faces: a folder, tar files or the sample -> shards of JPEG files, verified, with a manifest.

sources.py finds pictures, and shards.py makes shards of them. Training reads the shards through reading.py and
layout.py, which need only numpy. Processes of the workflow's own environment, which has Pillow, decode the pictures
(decoding.py), or DALI does in the rank (dali.py).
"""
