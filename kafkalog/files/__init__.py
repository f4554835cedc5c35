"""Which files a log directory has, and what their names and the small ones say."""
