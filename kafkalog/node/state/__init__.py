"""What the internal topics add up to: groups with their offsets, and where each is coordinated."""
