"""The data room for clicks: Criteo's logs, or made-up ones in their format -> hashed, sharded, verified, a manifest.

It knows the ground, study/ and how corpus/ writes files; training reads its results through reading.py, which needs
numpy and h5py alone.
"""
