"""Text as GPT-2's tokens: encode it with byte pair encoding, or use token files that other programs wrote."""
