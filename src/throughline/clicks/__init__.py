"""Clicks: Criteo's logs, or synthetic ones in their format -> shards of hashed rows, verified, with a manifest.

logs.py reads and draws logs, and shards.py makes shards of them. Training reads the shards through reading.py, which
needs only numpy and h5py.
"""
