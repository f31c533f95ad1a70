"""From tokens to shards: pairs of segments, examples with or without masks, their files, and the proof of them."""
