"""The corpus: a Wikipedia dump -> articles -> tokens -> shards of pre-training examples, verified, with a manifest.

source/ gets a dump and reads its pages. text/ turns them into tokens. shards/ makes and verifies BERT's examples, bpe/
does this for running text. manifest.py writes the manifests of both. The modules directly in this package serve several
of these. Training reads the shards through reading.py, shards/layout.py and shards/masks.py, which need
only numpy and h5py.
"""
