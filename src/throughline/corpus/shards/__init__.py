"""From tokens to shards: pairs of segments, examples with or without masks, their files, and the proof of them.

Finished shards of another maker are adopted here and checked by the same rules. The manifest lists what training reads.
"""
