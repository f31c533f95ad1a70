"""The corpus: a Wikipedia dump -> articles -> tokens -> shards of pre-training examples, verified, with a manifest.

source/ brings a dump and its pages, text/ makes tokens of them, shards/ makes, checks and lists examples. Here stands
what several of these use. This room knows the ground and study/; training reads its results through reading.py,
shards/layout.py and shards/masks.py, which need numpy and h5py alone.
"""
