"""Aligned faces. Their shards are made and read like those of all pictures: images/ has the steps."""
