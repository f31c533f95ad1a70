"""The data room for pictures: a folder, tar files or the sample -> shards of JPEG files, verified, with a manifest.

A shard is a tar file in webdataset's layout, with an index that DALI reads as well. This room knows the ground and
study/; training reads its results through reading.py and index.py, which need numpy alone. Pictures are decoded by
processes of the workflow's own environment (decoding.py), which has Pillow.
"""
