//! Opens what traffic is read from: files, compressed or not, pipes, files that still grow.
