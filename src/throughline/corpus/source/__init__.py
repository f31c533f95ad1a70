"""Where text comes from: a dump that is downloaded or at hand, checked and cut into parts, and the pages of a part."""
