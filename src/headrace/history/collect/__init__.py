"""Every host is followed, and each minute of it becomes rows of the history."""
