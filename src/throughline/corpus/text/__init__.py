"""From pages to tokens: extract plain text, split it into sentences, and turn these into ids of a vocabulary."""
