"""Text as GPT-2's tokens: byte pair encoding, and token files that other programs wrote."""
