"""Clicks: Criteo's logs, or synthetic ones in their format -> shards of hashed rows, verified, with a manifest.

Training reads the shards through reading.py, which needs only numpy and h5py.
"""
