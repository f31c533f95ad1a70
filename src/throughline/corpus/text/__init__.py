"""From pages to tokens: plain text, sentences, word pieces of a vocabulary, and the tokens that each shard is made of."""
