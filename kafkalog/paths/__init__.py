"""Where bytes are, and how they are read: local paths and object stores behind one interface."""
