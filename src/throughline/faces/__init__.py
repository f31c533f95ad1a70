"""The data room for aligned faces. Their shards are made and read as those of all pictures: images/ has the steps."""
