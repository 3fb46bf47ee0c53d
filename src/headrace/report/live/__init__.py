"""The live view as lines of text: what was seen in, lines of a given width out. No clock is read here."""
