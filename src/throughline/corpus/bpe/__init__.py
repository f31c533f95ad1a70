"""Running text for GPT-2 and other decoders: its vocabulary, encoding, shards and their verification.

The text is encoded as GPT-2's byte pairs, or by the user's own tokenizer.
"""

KIND = "tokens"
"""The value of `kind` in the manifest of such shards."""
SIZE = 50_257
"""The number of entries of GPT-2's vocabulary."""
END_OF_TEXT = SIZE - 1
"""The id of `<|endoftext|>`, which ends each document. The same characters inside a text never become this id."""
SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
"""The SHA-256 of GPT-2's published encoder.json, which names its vocabulary."""
