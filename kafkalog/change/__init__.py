"""What writes: the cleaner, retention, repair, rescue, lakes, and the journal that undoes it."""
