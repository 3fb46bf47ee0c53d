"""The live view as lines of text: takes what was sampled, returns lines of a given width. Reads no clock."""
