"""From pages to tokens: plain text, sentences, word pieces of a vocabulary, and the tokens that a shard is made of."""
